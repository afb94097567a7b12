if (DATA.runs.length) {
  byId("each-label").hidden = !seeded;
  const shown = new Set(DATA.panels.flatMap((panel) => panel.keys));
  const rest = [...new Set(DATA.runs.flatMap((run) => Object.keys(run.columns)))].filter((name) => !shown.has(name)).sort();
  options(byId("any-metric"), rest.map((name) => [name, name]), "choose one");
  byId("any-metric").addEventListener("input", drawAny);
  byId("curve-controls").addEventListener("submit", (event) => event.preventDefault());
  byId("curve-controls").addEventListener("input", () => {
    Object.assign(looks, { smoothing: Number(byId("smoothing").value), raw: byId("raw").checked, each: byId("each").checked });
    drawCurves();
  });
  drawLegend();
  drawCurves();
  drawDistributions();
  drawHacking();
  if (DATA.samples.length) startSamples();
}
if (DATA.questions.length) startQuestions();
// A served page follows its run: it reloads when a file changed, but not under the hands of someone who reads samples.
const refresh = document.querySelector("meta[name=r1zero-refresh]");
const place = "r1zero:" + location.search;

async function follow(known) {
  let version = known;
  try {
    const answer = await fetch("/version" + location.search);
    if (answer.ok) version = await answer.text();
  } catch (error) { console.info("the server does not answer: it was stopped, or is restarting"); }
  if (known && version !== known) {
    const busy = byId("search")?.value || byId("q-search")?.value || document.querySelector("dialog[open]") || samplesShown > PAGE;
    if (!busy) { sessionStorage.setItem(place, String(scrollY)); location.reload(); return; }
    byId("fresh").hidden = false;
  }
  setTimeout(() => follow(version), 1000 * Number(refresh.content));
}

if (refresh) {
  scrollTo(0, Number(sessionStorage.getItem(place) || 0));
  sessionStorage.removeItem(place);
  follow("");
}
