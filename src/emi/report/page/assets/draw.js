// Drawing: elements, numbers as text, scales, colours. Used by every section of the page.

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

// Round numbers within [low, high]: about `count` of them, but at least two.
function ticks(low, high, count) {
  const power = 10 ** Math.ceil(Math.log10((high - low) / count));
  const within = (step) => {
    const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step + 0); // no −0
  };
  const found = [1, 0.5, 0.2, 0.1, 0.05].map((factor) => within(factor * power)).filter((values) => values.length > 1);
  return found.findLast((values) => values.length <= count + 1) ?? found[0];
}

// Powers of ten within [low, high], with 2 and 5 in between if there are few; may be empty.
function logTicks(low, high, count) {
  const [first, last] = [Math.log10(low), Math.log10(high)];
  const every = Math.max(1, Math.floor((last - first) / count));
  const powers = [];
  for (let power = Math.floor(first / every) * every; power <= last; power += every) powers.push(10 ** power);
  const inside = (values) => values.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  return inside(powers).length > 2 ? inside(powers) : inside(powers.flatMap((power) => [power, 2 * power, 5 * power]));
}

// Texts of ticks: one unit, and as many decimals as their distance needs. 0, 0.5, 1.0 or 0, 20k, 40k
// or 0, 5e−6, 10e−6.
function tickTexts(values, distance = values[1] - values[0]) {
  const size = Math.max(...values.map(Math.abs));
  const exponent = Math.floor(Math.log10(distance) + 1e-9);
  const [unit, suffix] = size < 1e-3 ? [10 ** exponent, `e−${-exponent}`]
    : size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  const decimals = Math.min(20, Math.max(0, -Math.floor(Math.log10(distance / unit) + 1e-9)));
  return values.map((value) => (value === 0 ? "0" : minus((value / unit).toFixed(decimals)) + suffix));
}

// The ticks of an axis, each with its text; on a logarithmic axis each text has its own unit.
function labelledTicks(low, high, count, log = false) {
  const powers = log ? logTicks(low, high, count) : [];
  if (powers.length > 1) return powers.map((value) => [value, tickTexts([value], value)[0]]);
  const values = ticks(low, high, count);
  return tickTexts(values).map((text, i) => [values[i], text]);
}

// Values within the ranges x and y to pixels inside of the margin, and back.
function scaleOf(x, y, margin, inner, log = false) {
  const [forth, back] = log ? [Math.log, Math.exp] : [(value) => value, (value) => value];
  const [low, high] = y.map(forth);
  return {
    x: (value) => margin.left + ((value - x[0]) / (x[1] - x[0])) * inner.width,
    y: (value) => margin.top + (1 - (forth(value) - low) / (high - low)) * inner.height,
    toX: (pixel) => x[0] + ((pixel - margin.left) / inner.width) * (x[1] - x[0]),
    toY: (pixel) => back(low + (1 - (pixel - margin.top) / inner.height) * (high - low)),
  };
}
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

const colourName = (label) => `c${report.colours[label] % 9}`;
const colourOf = (label) => `var(--${colourName(label)})`;
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

// The axes of an SVG chart. Returns the element, its drawing area, which hides what lies outside of
// the axes, its scale, ranges and margins, and a function that makes a vertical line.
const LETTER = 7.2; // pixels, the width of a digit
function chart({ width, height, x, y, log = false, xName, yName, label, compact = false }) {
  const yTicks = labelledTicks(y[0], y[1], compact ? 3 : 6, log);
  const longest = Math.max(...yTicks.map(([, text]) => text.length)) * LETTER + 16 + (yName ? 20 : 0);
  const margin = { left: Math.max(compact ? 42 : 58, longest), right: 16, top: 10, bottom: compact ? 24 : 42 };
  const inner = innerSize(width, height, margin);
  const scale = scaleOf(x, y, margin, inner, log);
  const [right, bottom] = [width - margin.right, height - margin.bottom];
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const write = (text, attributes) => root.append(svg("text", { "text-anchor": "middle", ...attributes }, text));
  for (const [value, text] of yTicks) {
    const at = scale.y(value);
    root.append(svg("line", { class: "gridline", x1: margin.left, x2: right, y1: at, y2: at }));
    write(text, { class: "y-tick", x: margin.left - 8, y: at + 4, "text-anchor": "end" });
  }
  // As many as have room next to each other.
  const xTicks = [8, 6, 5, 4, 3, 2, 1].map((count) => labelledTicks(x[0], x[1], count));
  const fits = (found) => Math.max(...found.map(([, text]) => text.length)) * LETTER + 16 < (scale.x(found[1][0]) - scale.x(found[0][0]));
  for (const [value, text] of xTicks.find(fits) ?? xTicks.at(-1)) {
    // A label at the end of the axis must not leave the chart.
    const half = (text.length * LETTER) / 2;
    write(text, { class: "x-tick", x: Math.min(scale.x(value), width - half), y: bottom + 18 });
  }
  // A little wider than the axes, so that lines and marks at their ends are not cut in half.
  const frame = [margin.left - 5, margin.top - 5, inner.width + 10, inner.height + 10];
  const plot = svg("svg", { class: "plot", "aria-hidden": "true", x: frame[0], y: frame[1], width: frame[2], height: frame[3], viewBox: frame.join(" ") });
  root.append(plot, svg("line", { class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom }));
  if (xName) write(xName, { class: "axis-name", x: margin.left + inner.width / 2, y: height - 4 });
  if (yName) write(yName, { class: "axis-name", transform: `translate(14 ${margin.top + inner.height / 2}) rotate(-90)` });
  const upright = (at, attributes) => svg("line", { x1: at, x2: at, y1: margin.top, y2: bottom, ...attributes });
  // The place of the pointer in the units of the viewBox.
  const place = (event) => {
    const box = root.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height];
  };
  return { root, plot, scale, x, y, width, height, margin, inner, upright, place };
}

// The path of a line, interrupted where there is no value.
function linePath(xs, ys, scale) {
  let path = "";
  let pen = false;
  for (let i = 0; i < xs.length; i++) {
    const at = scale.y(ys[i]);
    if (!Number.isFinite(at)) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${scale.x(xs[i]).toFixed(1)} ${at.toFixed(1)}`;
    pen = true;
  }
  return path;
}

// The outline of a band, in several parts if there are places without a value.
function bandPath(xs, low, high, scale) {
  let path = "";
  let back = "";
  const close = () => { path += back && `${back}Z`; back = ""; };
  for (let i = 0; i < xs.length; i++) {
    const [from, to] = [scale.y(low[i]), scale.y(high[i])];
    if (!Number.isFinite(from) || !Number.isFinite(to)) { close(); continue; }
    const x = scale.x(xs[i]).toFixed(1);
    path += `${back ? "L" : "M"}${x} ${to.toFixed(1)}`;
    back = `L${x} ${from.toFixed(1)}${back}`;
  }
  close();
  return path;
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
