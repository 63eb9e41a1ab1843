// Drawing: elements, numbers as text, scales, colours. Used by every section of the page.

const byId = (name) => document.getElementById(name);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(element.style, value); // the policy forbids style attributes
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
// Taken from an element: written out, the namespace would be a URL in the page.
const SVG = byId("svg").namespaceURI;
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const small = (text) => (text ? html("small", {}, text) : null);
// A table; an entry of the head is a name and the smaller text below it.
const table = (caption, head, rows) => html("table", {},
  caption && html("caption", {}, caption),
  html("thead", {}, html("tr", {}, ...head.map(([name, below]) => html("th", { scope: "col" }, name, small(below))))),
  html("tbody", {}, ...rows));

function options(select, choices) {
  select.replaceChildren(...choices.map(([value, text]) => html("option", { value }, text)));
}

// A number as text: four significant digits, or a fixed number of decimals.
function written(value, decimals = null) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (decimals !== null) return minus(value.toFixed(decimals));
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return minus(value.toExponential(2));
  return minus(String(Number(value.toPrecision(4))));
}
const minus = (text) => (Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−"));
const whole = (value) => Math.round(value).toLocaleString("en");

function stepText(steps) {
  if (steps >= 1e6) return `${Number((steps / 1e6).toPrecision(3))}M`;
  if (steps >= 1e4) return `${Number((steps / 1e3).toPrecision(3))}k`;
  return whole(steps);
}
const runName = (run) => `${run.env}, ${run.label}, seed ${run.seed}`;
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

// Round numbers that cover [low, high], about `count` of them.
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw * 0.999) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step + 0); // no −0
  return found;
}

// Labels of one axis have the same number of decimals.
function tickTexts(values) {
  const step = values.length > 1 ? values[1] - values[0] : 1;
  const size = Math.max(...values.map(Math.abs));
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return values.map((value) => minus(String(Number(value.toPrecision(3)))));
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return values.map((value) => minus(value.toFixed(decimals)));
}

// The ticks of an axis, each with its text.
function labelledTicks(low, high, count, texts = tickTexts) {
  const values = ticks(low, high, count);
  return texts(values).map((text, i) => [values[i], text]);
}

// Values within the ranges x and y to pixels inside of the margin, and back.
const scaleOf = (x, y, margin, inner) => ({
  x: (value) => margin.left + ((value - x[0]) / (x[1] - x[0])) * inner.width,
  y: (value) => margin.top + (1 - (value - y[0]) / (y[1] - y[0])) * inner.height,
  toX: (pixel) => x[0] + ((pixel - margin.left) / inner.width) * (x[1] - x[0]),
  toY: (pixel) => y[0] + (1 - (pixel - margin.top) / inner.height) * (y[1] - y[0]),
});
const innerSize = (width, height, margin) => ({ width: width - margin.left - margin.right, height: height - margin.top - margin.bottom });

function extent(arrays, start = [Infinity, -Infinity]) {
  let [low, high] = start;
  for (const array of arrays) {
    for (const value of array) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (!(high >= low)) return [0, 1];
  return high > low ? [low, high] : [low - (low ? Math.abs(low) / 2 : 0), high + (Math.abs(high) / 2 || 1)];
}

const colourOf = (label) => `var(--c${report.colours[label] % 9})`;
// With more than nine groups, dashes distinguish lines of the same colour.
const dashOf = (label) => ["none", "6 3", "2 3", "8 3 2 3"][Math.floor(report.colours[label] / 9) % 4];

// A sample of a group's line, shown next to its name.
const swatch = (label) => svg("svg", { class: "swatch", viewBox: "0 0 22 8", "aria-hidden": "true" },
  svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, style: { stroke: colourOf(label), strokeWidth: "3", strokeDasharray: dashOf(label) } }));

// The current value of a style sheet variable, for drawing on a canvas.
const probe = document.body.appendChild(html("span", { hidden: true }));
function ink(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}
const isDark = () => {
  const [r, g, b] = ink("ground").match(/[\d.]+/g).map(Number);
  return r + g + b < 382;
};

// Viridis is perceptually uniform, also for colour-blind readers. Its darkest part is left out on a
// dark background, its lightest part on a light one.
const VIRIDIS = ["440154", "482475", "414487", "355f8d", "2a788e", "21918c", "22a884", "44bf70", "7ad151", "bddf26", "fde725"]
  .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
function sequential(share, dark) {
  const place = (dark ? 0.14 + 0.86 * share : 0.92 * share) * (VIRIDIS.length - 1);
  const at = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mix = VIRIDIS[at].map((low, c) => Math.round(low + (VIRIDIS[at + 1][c] - low) * (place - at)));
  return `rgb(${mix.join(" ")})`;
}

// The axes of an SVG chart. Returns the element, its scale, margins and inner size, a function that
// makes a vertical line through the chart, and one for the value of x under the pointer.
function chart({ width, height, x, y, xName, yName, xText, label, compact = false }) {
  const yTicks = labelledTicks(y[0], y[1], compact ? 3 : 6);
  const longest = Math.max(...yTicks.map(([, text]) => text.length)) * 8 + 12 + (yName ? 18 : 0);
  const margin = { left: Math.max(compact ? 42 : 58, longest), right: 12, top: 10, bottom: compact ? 24 : 42 };
  const inner = innerSize(width, height, margin);
  const scale = scaleOf(x, y, margin, inner);
  const [right, bottom] = [width - margin.right, height - margin.bottom];
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const write = (text, attributes) => root.append(svg("text", { "text-anchor": "middle", ...attributes }, text));
  for (const [value, text] of yTicks) {
    const at = scale.y(value);
    root.append(svg("line", { class: "gridline", x1: margin.left, x2: right, y1: at, y2: at }));
    write(text, { x: margin.left - 8, y: at + 4, "text-anchor": "end" });
  }
  for (const [value, text] of labelledTicks(x[0], x[1], Math.max(compact ? 2 : 3, Math.floor(inner.width / 100)), xText)) {
    write(text, { x: scale.x(value), y: bottom + 18 });
  }
  root.append(svg("line", { class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom }));
  if (xName) write(xName, { class: "axis-name", x: margin.left + inner.width / 2, y: height - 4 });
  if (yName) write(yName, { class: "axis-name", transform: `translate(14 ${margin.top + inner.height / 2}) rotate(-90)` });
  const upright = (at, attributes) => svg("line", { x1: at, x2: at, y1: margin.top, y2: bottom, ...attributes });
  const valueAt = (event) => {
    const box = root.getBoundingClientRect();
    return scale.toX(((event.clientX - box.left) / box.width) * width);
  };
  return { root, scale, margin, inner, upright, valueAt };
}

// The path of a line, interrupted where there is no value.
function linePath(xs, ys, scale) {
  let path = "";
  let pen = false;
  for (let i = 0; i < xs.length; i++) {
    if (Number.isNaN(ys[i])) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${scale.x(xs[i]).toFixed(1)} ${scale.y(ys[i]).toFixed(1)}`;
    pen = true;
  }
  return path;
}

function bandPath(xs, low, high, scale) {
  const back = linePath(xs.toReversed(), low.toReversed(), scale).replace("M", "L");
  return `${linePath(xs, high, scale)}${back}Z`;
}

// The index of the value in ascending `xs` that is nearest to `value`.
function nearest(xs, value) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < value) low = middle;
    else high = middle;
  }
  return value - xs[low] <= xs[high] - value ? low : high;
}

// Calls `draw` when the width of the element has changed, at most once per frame.
function onResize(element, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(element.clientWidth - width) < 1) return;
    width = element.clientWidth;
    requestAnimationFrame(draw);
  }).observe(element);
}
