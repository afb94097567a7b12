// Evaluations question by question; two of them side by side.
let questionsShown = PAGE;
const FILTERS = {
  "": () => true,
  a: (q) => q.shares[0] > q.shares[1], b: (q) => q.shares[1] > q.shares[0],
  both: (q) => q.shares[0] === 1 && q.shares[1] === 1, none: (q) => q.shares[0] === 0 && q.shares[1] === 0,
  "a-right": (q) => q.shares[0] > 0, "a-wrong": (q) => q.shares[0] < 1,
};

function evalSampleNode(sample, prompt, needle) {
  const line = make("div", { class: "verdicts" }, make("b", { class: sample.outcome }, sample.outcome), " ");
  putText(line, sample.reason + (sample.extracted === null ? "" : ", read " + sample.extracted));
  return make("article", {}, make("div", { class: "facts" }, sample.tokens + " tokens" + (sample.finish === "length" ? ", cut at the limit" : "")), completionNode(sample.completion, needle, opensThink(prompt)), line);
}

function questionNode(question, sides, needle) {
  const node = make("article", { class: "question" }, putText(make("div", { class: "facts" }), question.id + (question.answer ? ", gold answer " + question.answer : "")));
  node.append(putText(make("div", { class: "text prompt", dir: "ltr" }), question.prompt, needle));
  const columns = question.samples.map((samples, side) => make("div", {},
    make("b", {}, (sides > 1 ? "AB"[side] + ": " : "") + (question.shares[side] === null ? "no sample" : Math.round(100 * question.shares[side]) + "% right")),
    ...samples.map((sample) => evalSampleNode(sample, question.prompt, needle))));
  node.append(make("div", { class: "sides" }, ...columns));
  return node;
}

function drawQuestions() {
  const one = DATA.questions[Number(byId("q-benchmark").value)], keep = FILTERS[byId("q-filter").value], needle = byId("q-search").value.toLowerCase();
  const holds = (q) => [q.id, q.prompt, q.answer, ...q.samples.flat().map((s) => s.completion)].some((t) => t.toLowerCase().includes(needle));
  const found = one.questions.filter((q) => keep(q) && (!needle || holds(q)));
  byId("q-list").replaceChildren(...found.slice(0, questionsShown).map((q) => questionNode(q, one.sides, needle)));
  byId("q-count").textContent = found.length + " of " + one.questions.length + " questions" + (found.length > questionsShown ? ", the first " + questionsShown + " shown" : "");
  byId("more-questions").hidden = found.length <= questionsShown;
}

function startQuestions() {
  const again = () => { questionsShown = PAGE; drawQuestions(); };
  for (const id of ["q-benchmark", "q-filter", "q-search"]) byId(id).addEventListener("input", again);
  byId("more-questions").addEventListener("click", () => { questionsShown += PAGE; drawQuestions(); });
  drawQuestions();
}
