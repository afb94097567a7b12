// Charts in SVG: lines with bands, stacks and points. A chart is {title, says, series, xLabel}; a series has points
// [[x, y], ...] and how it is drawn. Values are those of the data: only their places on the page are rounded.
const WIDTH = 360, HEIGHT = 190, LEFT = 50, RIGHT = 18, TOP = 10, BOTTOM = 32;
const colour = (i) => "var(--c" + (i % 8) + ")";
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 4", "12 4"];

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function smooth(points, weight) {
  let mean = 0, mass = 0;
  return points.map(([x, y]) => { mean = weight * mean + (1 - weight) * y; mass = weight * mass + 1 - weight; return [x, mean / mass]; });
}

function ticks(low, high, count) {
  const span = high - low || 1, rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
  if (low === Infinity) return [0, 1];
  return low === high ? [low - (Math.abs(low) * 0.05 || 1), high + (Math.abs(high) * 0.05 || 1)] : [low, high];
}

function chart(into, spec) {
  const series = spec.series.filter((one) => one.points.length);
  if (!series.length) return null;
  const xs = extent(series.flatMap((one) => one.points.map((p) => p[0])));
  const ys = extent(series.flatMap((one) => [...one.points.map((p) => p[1]), ...(one.band || []).flatMap((b) => [b[1], b[2]])]));
  if (spec.zero) ys[0] = Math.min(0, ys[0]);
  const x = (v) => LEFT + ((v - xs[0]) / (xs[1] - xs[0])) * (WIDTH - LEFT - RIGHT);
  const y = (v) => HEIGHT - BOTTOM - ((v - ys[0]) / (ys[1] - ys[0])) * (HEIGHT - TOP - BOTTOM);
  const place = (px, py) => x(px).toFixed(1) + "," + y(py).toFixed(1);
  const figure = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": spec.title });
  for (const v of ticks(ys[0], ys[1], 4)) {
    figure.append(svg("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(v), y2: y(v) }));
    figure.append(svg("text", { x: LEFT - 5, y: y(v) + 4, "text-anchor": "end" }, number(v)));
  }
  for (const v of ticks(xs[0], xs[1], 5)) {
    if (spec.xLabel !== "step" || Number.isInteger(v)) figure.append(svg("text", { x: x(v), y: HEIGHT - BOTTOM + 14, "text-anchor": "middle" }, number(v)));
  }
  figure.append(svg("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, spec.xLabel || "step"));
  for (const one of series) draw(figure, one, place);
  const output = make("output", {});
  const caption = make("figcaption", {}, make("b", {}, spec.title), make("span", { class: "quiet" }, spec.says || ""));
  const keys = make("div", { class: "keys" });
  for (const one of spec.keyed || series) if (one.key) keys.append(key(one));
  const box = make("figure", { "data-title": spec.title }, caption, keys, figure, output);
  if (spec.xLabel !== undefined && spec.xLabel !== "step") output.remove(); else point(figure, output, series, xs, x);
  into.append(box);
  return box;
}

function draw(figure, one, place) {
  if (one.band && one.band.length) {
    const there = one.band.map((b) => place(b[0], b[2])), back = one.band.map((b) => place(b[0], b[1])).reverse();
    figure.append(svg("polygon", { points: [...there, ...back].join(" "), fill: one.colour, opacity: one.opacity || 0.2 }));
    if (one.bandOnly) return;
  }
  const line = (points, attributes) => figure.append(svg("polyline", { points: points.map((p) => place(p[0], p[1])).join(" "), fill: "none", stroke: one.colour, ...attributes }));
  if (one.dots || one.points.length === 1) {
    for (const p of one.points) { const [cx, cy] = place(p[0], p[1]).split(","); figure.append(svg("circle", { cx, cy, r: 2.2, fill: one.colour, opacity: 0.7 })); }
    if (one.dots) return;
  }
  if (one.raw && one.smoothing) line(one.points, { "stroke-width": 1, opacity: 0.3 });
  line(one.smoothing ? smooth(one.points, one.smoothing) : one.points, { "stroke-width": 1.7, "stroke-dasharray": one.dash || "" });
}

function key(one) {
  const dashed = svg("svg", { viewBox: "0 0 22 6", style: "display:inline-block;width:22px;height:6px;margin-right:5px" },
    svg("line", { x1: 0, x2: 22, y1: 3, y2: 3, stroke: one.colour, "stroke-width": one.bandOnly ? 6 : 2, "stroke-dasharray": one.dash || "", opacity: one.bandOnly ? 0.6 : 1 }));
  return make("span", {}, dashed, one.key);
}

// The values under the pointer, as they are in the data.
function point(figure, output, series, xs, x) {
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  figure.append(cursor);
  figure.addEventListener("pointermove", (event) => {
    const box = figure.getBoundingClientRect();
    const at = xs[0] + (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * (xs[1] - xs[0]);
    let best = null;
    for (const one of series) for (const p of one.points) if (best === null || Math.abs(p[0] - at) < Math.abs(best - at)) best = p[0];
    cursor.setAttribute("visibility", "visible"); cursor.setAttribute("x1", x(best)); cursor.setAttribute("x2", x(best));
    const said = series.flatMap((one) => one.points.filter((p) => p[0] === best).map((p) => (one.tip || one.key || "") + " " + number(p[2] === undefined ? p[1] : p[2])));
    output.textContent = "step " + best + ": " + said.join(", ");
  });
  figure.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); output.textContent = ""; });
}

// Shares or seconds on top of one another. rows: {name: values}; xs: their places.
function stack(into, title, says, xs, rows, colours) {
  const sums = xs.map(() => 0);
  const series = Object.entries(rows).filter(([, values]) => values.some((v) => v)).map(([name, values], i) => {
    const band = [], points = [];
    xs.forEach((x, k) => { const low = sums[k]; sums[k] += values[k] || 0; band.push([x, low, sums[k]]); points.push([x, sums[k], values[k] || 0]); });
    return { key: name, points, band, colour: (colours || {})[name] || colour(i), opacity: 0.6, bandOnly: xs.length > 1 };
  });
  return chart(into, { title, says, series, zero: true });
}
