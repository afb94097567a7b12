// Samples: filter, search, order, and one prompt across steps.
const PAGE = 20;
let samplesShown = PAGE;

const outcomesOf = (sample) => sample.verdicts.map((v) => v[1]);
const opensThink = (prompt) => prompt.lastIndexOf("<think>") > prompt.lastIndexOf("</think>");

function sampleNode(sample, needle, short) {
  const facts = make("div", { class: "facts" });
  const put = (name, value) => { if (value !== null && value !== undefined && value !== "") facts.append(putText(make("span", {}), name + " " + value)); };
  if (DATA.runs.length > 1) put("run", DATA.runs[sample.run].name);
  put("step", sample.step);
  put("", sample.kind === "train" ? "training" : "held-out");
  put("reward", sample.reward === null ? "none (dropped)" : number(sample.reward));
  if (sample.advantage !== null) put("advantage", number(sample.advantage));
  if (sample.lift !== undefined) put("over its step's mean", number(sample.lift));
  for (const [name, score] of Object.entries(sample.scores)) put(name, number(score));
  put("", (sample.tokens ?? "?") + " tokens" + (sample.finish === "length" ? ", cut at the limit" : ""));
  if (sample.answer) put("gold answer", sample.answer);
  const verdicts = make("ul", { class: "verdicts" });
  for (const [name, outcome, score, reason, extracted] of sample.verdicts) {
    const item = make("li", {}, make("b", { class: outcome }, name + ": " + outcome), score === null ? "" : " (" + number(score) + ")");
    if (reason) putText(item.appendChild(make("span", {}, " ")), reason, needle);
    if (extracted !== null) putText(item.appendChild(make("span", { class: "quiet" }, ", read ")), extracted);
    verdicts.append(item);
  }
  const node = make("article", {}, facts);
  if (!short) node.append(putText(make("div", { class: "text prompt", dir: "ltr" }), sample.prompt, needle));
  node.append(completionNode(sample.completion, needle, opensThink(sample.prompt)), verdicts);
  if (!short) {
    const others = DATA.samples.filter((one) => one.id === sample.id && one.run === sample.run && one.kind === sample.kind);
    const steps = new Set(others.map((one) => one.step)).size;
    if (steps > 1) {
      const button = make("button", { type: "button", class: "across" }, "This prompt at " + steps + " steps");
      button.addEventListener("click", () => showAcross(sample, others));
      node.append(button);
    }
  }
  return node;
}

function showAcross(sample, others) {
  const body = byId("across-body"), sides = make("div", { class: "sides" });
  for (const one of [...others].sort((a, b) => a.step - b.step || (b.reward ?? 0) - (a.reward ?? 0))) sides.append(sampleNode(one, "", true));
  body.replaceChildren(putText(make("div", { class: "text prompt", dir: "ltr" }), sample.prompt), sides);
  byId("across").showModal();
}

const ORDERS = {
  newest: (a, b) => b.step - a.step, oldest: (a, b) => a.step - b.step,
  best: (a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity), worst: (a, b) => (a.reward ?? Infinity) - (b.reward ?? Infinity),
  advantage: (a, b) => Math.abs(b.advantage ?? 0) - Math.abs(a.advantage ?? 0), longest: (a, b) => (b.tokens ?? 0) - (a.tokens ?? 0),
};

function chosenSamples() {
  const needle = byId("search").value.toLowerCase(), [run, kind, step, outcome] = ["by-run", "by-kind", "by-step", "by-outcome"].map((id) => byId(id).value);
  const disputed = byId("disputed").checked;
  const holds = (s) => [s.prompt, s.completion, s.id, s.answer, ...s.verdicts.map((v) => v[3])].some((t) => t.toLowerCase().includes(needle));
  const judged = (s) => new Set(outcomesOf(s).filter((o) => o !== "error" && o !== "timeout").map((o) => o === "correct"));
  const found = DATA.samples.filter((s) => (!run || String(s.run) === run) && (!kind || s.kind === kind) && (!step || String(s.step) === step) &&
    (!outcome || s.verdicts.some((v) => v[0] + ": " + v[1] === outcome)) && (!disputed || judged(s).size > 1) && (!needle || holds(s)));
  return found.sort(ORDERS[byId("order").value]);
}

function drawSamples() {
  const found = chosenSamples(), needle = byId("search").value.toLowerCase();
  byId("sample-list").replaceChildren(...found.slice(0, samplesShown).map((sample) => sampleNode(sample, needle)));
  byId("sample-count").textContent = found.length + " of " + DATA.samples.length + " samples" + (found.length > samplesShown ? ", the first " + samplesShown + " shown" : "");
  byId("more-samples").hidden = found.length <= samplesShown;
}

function startSamples() {
  options(byId("by-run"), DATA.runs.map((run, i) => [i, run.name]), "all");
  options(byId("by-step"), [...new Set(DATA.samples.map((s) => s.step))].sort((a, b) => a - b).map((s) => [s, s]), "all");
  const verdicts = [...new Set(DATA.samples.flatMap((s) => s.verdicts.map((v) => v[0] + ": " + v[1])))].sort();
  options(byId("by-outcome"), verdicts.map((v) => [v, v]), "any");
  byId("sample-controls").addEventListener("input", () => { samplesShown = PAGE; drawSamples(); });
  byId("sample-controls").addEventListener("submit", (event) => event.preventDefault());
  byId("more-samples").addEventListener("click", () => { samplesShown += PAGE; drawSamples(); });
  drawSamples();
  for (const box of document.querySelectorAll(".overrated")) {
    const mine = DATA.overrated.filter((s) => String(s.run) === box.dataset.run);
    if (mine.length) box.append(make("div", { class: "sides" }, ...mine.slice(0, 6).map((s) => sampleNode(s, "", false))));
    else box.append(make("p", {}, "None in the second half of the steps."));
  }
}
