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
  startSamples();
}
if (DATA.questions.length) startQuestions();
// A page that reloads itself keeps its place.
const place = "r1zero:" + location.pathname;
if (document.querySelector("meta[http-equiv=refresh]")) {
  try {
    scrollTo(0, Number(sessionStorage.getItem(place) || 0));
    addEventListener("beforeunload", () => sessionStorage.setItem(place, String(scrollY)));
  } catch (error) { console.info("no storage here, so the page starts at its top after a reload"); }
}
