// Charts as SVG, with a read-out for mouse, touch and arrow keys.
// chart({title, note, x, series: [{name, points: [[x, y or null], ...], kind: "line" or "reference"}]}): an element.
// histogram({title, x, edges, series: [{name, shares}]}): an element.
"use strict";

const TOP = 10; // pixels above the plot
const BELOW = 40; // for the ticks and the name of x

function chart(spec) {
  const lines = curves(spec.series);
  const xs = [...new Set(lines.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const known = ({ points }) => points.findLast(([, y]) => y != null);
  const rest = (line) => (known(line) ? number(known(line)[1]) : "–");
  const told = lines.map((line) => `${line.name} ${rest(line)}`).join(", ");
  const cursor = (i, place) => [
    drawing("line", { class: "cursor", x1: place.x(xs[i]), x2: place.x(xs[i]), y1: TOP, y2: place.bottom }),
    ...lines.filter((line) => line.valueAt(xs[i]) != null).map((line) => dot(line, xs[i], line.valueAt(xs[i]), place)),
  ];
  const heading = [element("h3", {}, spec.title), element("p", { class: "note" }, spec.note ?? "")];
  if (xs.length === 1) return single(spec, heading, lines, rest, xs[0]);
  const plot = plotted(spec, {
    lines, xs, low: xs[0] ?? 0, high: xs.at(-1) ?? 1, from: null,
    say: number, rest, where: (i) => number(xs[i]), marks: curve, cursor,
    label: `${spec.title}. Last values: ${told}`,
  });
  plot.prepend(...heading);
  return plot;
}

// A chart of one point would be a dot in an empty field: its value is a number.
function single(spec, heading, lines, rest, x) {
  const value = (line) => element("li", { class: line.kind ?? "" }, element("b", {}, rest(line)), line.name);
  const where = element("p", { class: "note" }, `Measured once, at ${spec.x ?? ""} ${number(x)}.`);
  return element("figure", { class: "chart" }, ...heading, element("ul", { class: "single" }, ...lines.map(value)), where);
}

function histogram(spec) {
  const { edges, series } = spec;
  const xs = edges.slice(1).map((edge, i) => (edges[i] + edge) / 2);
  const lines = series.map(({ name, shares }, i) => ({
    name, colour: colour(i), dashes: "none", points: xs.map((x, bin) => [x, shares[bin]]),
    valueAt: (x) => shares[xs.indexOf(x)],
  }));
  const say = (share) => `${number(Number((100 * share).toPrecision(9)))}%`;
  const most = ({ name, points }) => {
    const [x, share] = points.reduce((a, b) => (b[1] > a[1] ? b : a));
    return `${name} most often near ${number(x)}, ${say(share)}`;
  };
  const marks = ({ colour: paint, points }, place) => {
    const steps = points.map(([, share], i) => `L${place.x(edges[i])} ${place.y(share ?? 0)}H${place.x(edges[i + 1])}`);
    const outline = steps.join("").replace("L", "M");
    const area = `${outline}V${place.bottom}H${place.x(edges[0])}Z`;
    const filled = drawing("path", { class: "area", d: area, style: `fill: ${paint}` });
    return [filled, drawing("path", { d: outline, style: `stroke: ${paint}` })];
  };
  const cursor = (i, place) => {
    const [x, end] = [place.x(edges[i]), place.x(edges[i + 1])];
    return [drawing("rect", { class: "bin", x, y: TOP, width: end - x, height: place.bottom - TOP })];
  };
  return plotted(spec, {
    lines, xs, low: edges[0], high: edges.at(-1), from: 0,
    say, rest: () => "", where: (i) => `${number(edges[i])} to ${number(edges[i + 1])}`, marks, cursor,
    label: `${spec.title}. ${lines.map(most).join("; ")}`,
  });
}

// Shared by all charts: axes, the legend, which is also the read-out, and cursor control.
function plotted(spec, { lines, xs, low, high, from, say, rest, where, marks, cursor, label }) {
  const values = lines.map(() => element("b"));
  const at = element("li", { class: "unseen" }); // seen below the cursor, in the place of the name of x
  const legend = lines.map((line, i) => element("li", {}, swatch(line), line.name, values[i]));
  const read = element("ul", { class: "read", "aria-live": "polite" }, ...legend, at);
  const picture = drawing("svg", { role: "img", tabindex: 0, "aria-label": label });
  const plot = element("div", { class: "plot" }, picture);
  const write = (x, y, text, anchor = "middle") => drawing("text", { x, y, "text-anchor": anchor }, text);
  let place = null; // of values in the picture as it was last drawn
  let chosen = null; // which of xs is read out

  function draw() {
    const width = plot.clientWidth;
    if (!width) return;
    const height = Math.round(Math.min(260, Math.max(190, width * 0.45)));
    const bottom = height - BELOW;
    const ys = lines.flatMap(({ points }) => points.map(([, y]) => y)).filter((y) => y != null);
    const up = around(ys, height / 40, from);
    const labels = up.ticks.map(say);
    const ruler = picture.appendChild(drawing("text"));
    const long = (text) => ((ruler.textContent = text), ruler.getComputedTextLength());
    const left = 10 + Math.max(...labels.map(long));
    const end = width - 2 - long(number(high)) / 2;
    const across = (end - left) / Math.max(60, long(number(high)) + 24); // ticks that have room side by side
    place = {
      width, bottom, middle: (left + end) / 2,
      x: (v) => (high > low ? left + ((v - low) / (high - low)) * (end - left) : (left + end) / 2),
      y: (v) => bottom - ((v - up.ticks[0]) / (up.ticks.at(-1) - up.ticks[0])) * (bottom - TOP),
    };
    const grid = up.ticks.map(place.y).map((y, i) => drawing("g", {},
      drawing("line", { class: i ? "grid" : "axis", x1: left, x2: end, y1: y, y2: y }),
      write(left - 8, y + 4, labels[i], "end")));
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", height);
    picture.replaceChildren(
      ...grid,
      ...between(low, high, across).ticks.map((x) => write(place.x(x), bottom + 17, number(x))),
      ...lines.map((line) => drawing("g", { class: `series ${line.kind ?? ""}` }, ...marks(line, place))),
      ...(ys.length ? [] : [write(place.middle, bottom / 2, "no values")]),
      drawing("g", { class: "chosen" }));
    show(chosen);
  }

  function show(index) {
    chosen = index;
    lines.forEach((line, i) => {
      const y = index == null ? null : line.valueAt(xs[index]);
      values[i].textContent = index == null ? rest(line) : y == null ? "–" : say(y);
    });
    at.textContent = [spec.x ?? "", index == null ? "" : where(index)].join(" ").trim();
    if (!place) return;
    const name = write(place.middle, place.bottom + 35, at.textContent);
    picture.querySelector(".chosen").replaceChildren(name, ...(index == null ? [] : cursor(index, place)));
    if (index == null) return;
    const half = name.getComputedTextLength() / 2 + 4;
    name.setAttribute("x", Math.max(half, Math.min(place.x(xs[index]), place.width - half)));
    name.setAttribute("class", "here");
  }

  const point = (event) => {
    const across = event.clientX - picture.getBoundingClientRect().left;
    const nearer = (best, x, i) => (Math.abs(place.x(x) - across) < Math.abs(place.x(xs[best]) - across) ? i : best);
    if (xs.length) show(xs.reduce(nearer, 0));
  };
  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  picture.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(null));
  picture.addEventListener("blur", () => show(null));
  picture.addEventListener("keydown", (event) => {
    const end = xs.length - 1;
    const [left, right] = [(chosen ?? end + 1) - 1, (chosen ?? -1) + 1]; // from either end at first
    const keys = { ArrowLeft: left, ArrowRight: right, PageUp: left - 9, PageDown: right + 9, Home: 0, End: end };
    if (event.key === "Escape") show(null);
    if (!(event.key in keys) || end < 0) return;
    event.preventDefault();
    show(Math.min(end, Math.max(0, keys[event.key])));
  });
  new ResizeObserver(draw).observe(plot);
  show(null);
  return element("figure", { class: "chart" }, read, plot);
}

function curves(series) {
  let plain = 0, references = 0;
  return series.map(({ name, kind, points }) => {
    const known = points.filter(([x]) => x != null).map(([x, y]) => [x, y ?? null]);
    const values = new Map(known);
    const valueAt = (x) => values.get(x);
    if (kind !== "reference") return { name, points: known, valueAt, colour: colour(plain++), dashes: "none" };
    const dashes = ["5 4", "1.5 3.5", "9 3 2 3"][references++ % 3];
    // A reference is known between its points too: chance is often given by its two ends.
    const inside = (x) => {
      const after = known.findIndex(([other]) => other > x);
      if (values.has(x) || after < 1) return values.get(x);
      const [[x0, y0], [x1, y1]] = [known[after - 1], known[after]];
      return y0 == null || y1 == null ? null : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
    };
    return { name, kind, points: known, valueAt: inside, colour: "var(--muted)", dashes };
  });
}

function curve(line, place) {
  const { kind, points } = line;
  const is = (i) => points[i]?.[1] != null;
  const go = ([x, y], i) => (is(i) ? `${is(i - 1) ? "L" : "M"}${place.x(x).toFixed(1)} ${place.y(y).toFixed(1)}` : "");
  const path = drawing("path", { d: points.map(go).join(""), style: stroke(line) });
  // Dots where points are few, and where one stands alone: a path through one point is nothing.
  const few = kind !== "reference" && points.length < 25;
  const dots = points.filter((_, i) => is(i) && (few || (!is(i - 1) && !is(i + 1))));
  return [path, ...dots.map(([x, y]) => dot(line, x, y, place))];
}

function dot(line, x, y, place) {
  return drawing("circle", { cx: place.x(x), cy: place.y(y), r: 3, style: `fill: ${line.colour}` });
}

const stroke = (line) => `stroke: ${line.colour}; stroke-dasharray: ${line.dashes}`;

function swatch(line) {
  const path = drawing("path", { d: "M1 5H21", style: stroke(line), "stroke-width": 2.5 });
  return drawing("svg", { width: 22, height: 10, "aria-hidden": "true" }, path);
}

// Ticks at 1, 2 or 5 times a power of ten, about `count` of them.
function between(low, high, count) {
  if (!(high > low)) return { step: 1, ticks: [low] };
  const rough = (high - low) / Math.max(2, Math.min(count, 8));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-6), last = Math.floor(high / step + 1e-6);
  const tick = (_, i) => Number(((first + i) * step).toPrecision(9));
  return { step, ticks: Array.from({ length: last - first + 1 }, tick) };
}

// Ticks from below all values to above them; `from` where they have to begin there.
function around(values, count, from) {
  let low = from ?? values.reduce((a, b) => Math.min(a, b), Infinity);
  let high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!values.length) [low, high] = [0, 1];
  if (high - low <= 1e-9 * Math.abs(high)) {
    const room = Math.abs(high) * 0.1 || 1;
    [low, high] = [from ?? low - room, high + room];
  }
  const { step } = between(low, high, count);
  const outer = [Math.floor(low / step + 1e-6) * step, Math.ceil(high / step - 1e-6) * step];
  return between(...outer, (outer[1] - outer[0]) / step);
}
