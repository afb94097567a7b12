// Curves of the runs: every series takes its points from the embedded columns of metrics.jsonl.
const experiments = [...new Set(DATA.runs.map((run) => run.experiment))];
const seedsOf = experiments.map((one) => DATA.runs.filter((run) => run.experiment === one));
const seeded = seedsOf.some((runs) => runs.length > 1);
const looks = { smoothing: 0.6, raw: true, each: false };

function pointsOf(run, metric) {
  const column = run.columns[metric] || [], found = [];
  column.forEach((value, i) => { if (value !== null) found.push([run.steps[i], value]); });
  return found;
}

function lookOf(run) {
  return colour(looks.each || !seeded ? DATA.runs.indexOf(run) : experiments.indexOf(run.experiment));
}

// Mean, lowest and highest over the seeds that have the step.
function overSeeds(runs, metric) {
  const at = new Map();
  for (const run of runs) for (const [x, y] of pointsOf(run, metric)) { if (!at.has(x)) at.set(x, []); at.get(x).push(y); }
  const steps = [...at.keys()].sort((a, b) => a - b);
  return {
    points: steps.map((x) => [x, at.get(x).reduce((a, b) => a + b, 0) / at.get(x).length]),
    band: steps.map((x) => [x, Math.min(...at.get(x)), Math.max(...at.get(x))]),
  };
}

function intervalOf(run, panel) {
  if (!panel.low || !run.columns[panel.low]) return undefined;
  const low = new Map(pointsOf(run, panel.low)), high = new Map(pointsOf(run, panel.high));
  return [...low.keys()].filter((x) => high.has(x)).map((x) => [x, low.get(x), high.get(x)]);
}

function seriesOf(panel) {
  const found = [];
  panel.keys.forEach((metric, k) => {
    const dash = DASHES[k % DASHES.length], own = panel.low && k === 0 ? 0 : looks.smoothing;
    const common = { dash, raw: looks.raw };
    for (const runs of seedsOf) {
      const smoothing = own && Math.max(...runs.map((run) => pointsOf(run, metric).length)) > 9 ? own : 0;
      if (runs.length > 1 && !looks.each) {
        found.push({ ...common, ...overSeeds(runs, metric), smoothing, colour: lookOf(runs[0]), tip: tipOf(metric, panel, runs[0]), metric });
      } else for (const run of runs) {
        found.push({ ...common, points: pointsOf(run, metric), band: k === 0 ? intervalOf(run, panel) : undefined, smoothing, colour: lookOf(run), tip: tipOf(metric, panel, run), metric, run: run.name });
      }
    }
  });
  return found;
}

const tipOf = (metric, panel, run) => [panel.keys.length > 1 || DATA.runs.length < 2 ? metric : "", DATA.runs.length > 1 ? run.name : ""].filter(Boolean).join(" · ");

// A metric is a dash, a run a colour: each is named once.
function keysOf(panel, series) {
  const drawn = series.filter((one) => one.points.length), found = [];
  if (panel.keys.length > 1 || DATA.runs.length < 2) panel.keys.forEach((metric, k) => found.push({ key: metric, dash: DASHES[k % DASHES.length], colour: DATA.runs.length < 2 ? colour(0) : "currentColor" }));
  const runs = new Map(drawn.map((one) => [one.colour, one]));
  if (DATA.runs.length > 1) for (const one of runs.values()) found.push({ key: one.tip.split(" · ").pop(), colour: one.colour });
  return found;
}

function drawCurves() {
  const into = byId("panels");
  into.replaceChildren();
  for (const panel of DATA.panels) panelChart(into, panel);
  drawAny();
}

function drawAny() {
  const metric = byId("any-metric").value, into = byId("any-panel");
  into.replaceChildren();
  if (metric) panelChart(into, { title: metric, keys: [metric] });
}

function panelChart(into, panel) {
  const series = seriesOf(panel);
  chart(into, { ...panel, series, keyed: keysOf(panel, series) });
}

function drawLegend() {
  if (DATA.runs.length < 2) return;
  for (const runs of seedsOf) {
    const name = runs.length > 1 ? runs[0].name + " and " + (runs.length - 1) + " more seeds" : runs[0].name;
    byId("legend").append(make("span", {}, make("i", { class: "swatch", style: "background:" + lookOf(runs[0]) }), name));
  }
}

const OUTCOMES = { correct: "var(--c2)", wrong: "var(--c1)", unparseable: "var(--c3)", truncated: "var(--c5)", timeout: "var(--c6)", error: "var(--c4)" };
const titled = (run, what) => (DATA.runs.length > 1 ? run.name + ": " + what : what);

function drawDistributions() {
  for (const run of DATA.runs) {
    const d = run.digest, quantile = (q) => DATA.quantiles.indexOf(q), c = colour(0);
    if (d.steps.length) {
      const at = (q) => d.steps.map((x, i) => [x, d.lengths[i][quantile(q)]]);
      const between = (a, b) => d.steps.map((x, i) => [x, d.lengths[i][quantile(a)], d.lengths[i][quantile(b)]]);
      chart(byId("lengths"), { title: titled(run, "tokens of a completion"), zero: true, series: [
        { points: at(95), band: between(5, 95), bandOnly: true, opacity: 0.18, colour: c, key: "5% to 95%", tip: "95%" },
        { points: at(75), band: between(25, 75), bandOnly: true, opacity: 0.35, colour: c, key: "middle half", tip: "75%" },
        { points: at(50), colour: c, key: "median" }] });
      const words = Object.entries(d.words).filter(([, values]) => values.some((v) => v > 0));
      if (words.length) chart(byId("words"), { title: titled(run, "reflection"), zero: true, series: words.map(([word, values], i) => ({ key: word, points: d.steps.map((x, k) => [x, values[k]]), colour: colour(i), smoothing: looks.smoothing, raw: true })) });
      else byId("words").append(make("p", {}, titled(run, "none of these words was said.")));
    }
    for (const term of run.terms) {
      const rows = {};
      const keys = Object.keys(OUTCOMES).map((name) => "reward/" + term + "/" + name).filter((name) => run.columns[name]);
      const kept = run.steps.map((_, i) => i).filter((i) => keys.some((name) => run.columns[name][i] !== null));
      for (const name of keys) rows[name.split("/").pop()] = kept.map((i) => run.columns[name][i]);
      if (keys.length) stack(byId("outcomes"), titled(run, term), "", kept.map((i) => run.steps[i]), rows, OUTCOMES);
    }
    const timed = run.steps.map((_, i) => i).filter((i) => run.phases.some((name) => run.columns[name][i] !== null)), rows = {};
    for (const name of run.phases) rows[name.replace("time/", "")] = timed.map((i) => run.columns[name][i]);
    if (run.phases.length) stack(byId("times"), titled(run, "seconds of a step"), "", timed.map((i) => run.steps[i]), rows);
  }
}

function drawHacking() {
  const into = byId("hacking-curves");
  if (!into) return;
  for (const run of DATA.runs) {
    const reward = pointsOf(run, "reward/mean"), gold = run.gold_metric ? pointsOf(run, run.gold_metric) : [];
    const both = (points) => ({ raw: true, smoothing: points.length > 9 ? looks.smoothing : 0, points });
    if (gold.length) chart(into, { title: titled(run, "reward against gold"), says: "They should rise together.", series: [
      { ...both(reward), colour: colour(0), key: "reward/mean" }, { ...both(gold), colour: colour(1), key: run.gold_metric, dash: "6 3" }] });
    if (run.kl) {
      const kl = new Map(pointsOf(run, run.kl)), against = (points) => points.filter((p) => kl.has(p[0])).map((p) => [kl.get(p[0]), p[1]]);
      chart(into, { title: titled(run, "reward against KL"), says: "Over-optimised where the gold turns down while the reward goes on.", xLabel: run.kl, series: [
        { points: against(reward), dots: true, colour: colour(0), key: "reward/mean" }, { points: against(gold), dots: true, colour: colour(1), key: run.gold_metric }] });
    }
    const d = run.digest, line = (values) => d.steps.map((x, i) => [x, values[i]]).filter((p) => p[1] !== null);
    chart(into, { title: titled(run, "what the reward goes with"), says: "Correlation over a step's completions: near 1, it pays for length, or for format alone.", series: [
      { ...both(line(d.length_reward)), colour: colour(2), key: "length" }, { ...both(line(d.format_reward)), colour: colour(3), key: "format", dash: "6 3" }] });
  }
}
