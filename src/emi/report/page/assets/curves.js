// Learning curves: one chart of all groups or a panel for each; means, intervals and seeds of any
// column of metrics.csv, over steps, hours or iterations.

const curves = {
  blocks: new Map(), // decoded columns, by environment and number of the column
  charts: [], // as they are drawn now
  full: [0, 1], // the whole range of the x axis
  cursor: null, // position on the grid of a chart
};
const X_NAMES = { steps: "environment steps", hours: "training time [hours]", iterations: "iteration" };
const X_TEXTS = {
  steps: (value) => `${stepText(value)} steps`,
  hours: (value) => `${written(value)} hours`,
  iterations: (value) => `iteration ${whole(value)}`,
};
const titleOf = (measure) => (Object.hasOwn(report.titles, measure) ? report.titles[measure] : measure);

const runAxis = once((number, axis) => (axis === "hours" ? quantised : evenly)(report.runs[number].axes[axis]));
// The last point of a thinned curve lies before the end of its run.
const runEnd = (run) => ({ steps: run.reached, hours: (run.minutes ?? 0) / 60, iterations: run.iterations })[view.x];

// The axis of a mean: over hours or iterations, a point lies at the mean over its runs.
function groupAxis(steps, numbers) {
  if (view.x === "steps") return steps;
  return steps.map((step) => numbers.reduce((sum, number) => sum + between(runAxis(number, "steps"), runAxis(number, view.x), step), 0) / numbers.length);
}

// The value of ys at x, interpolated linearly; xs ascend.
function between(xs, ys, x) {
  const k = nearest(xs, x);
  const other = x < xs[k] ? Math.max(0, k - 1) : Math.min(xs.length - 1, k + 1);
  return other === k ? ys[k] : ys[k] + ((ys[other] - ys[k]) * (x - xs[k])) / (xs[other] - xs[k]);
}

// The mean over `half` points on either side, as many as there are on both: the first and the last
// value stay. Points without a value do not count.
function smoothed(values, half) {
  if (half === 0) return values;
  const sums = new Float64Array(values.length + 1);
  const counts = new Float64Array(values.length + 1);
  values.forEach((value, i) => {
    sums[i + 1] = sums[i] + (Number.isNaN(value) ? 0 : value);
    counts[i + 1] = counts[i] + !Number.isNaN(value);
  });
  return values.map((_, i) => {
    const reach = Math.min(half, i, values.length - 1 - i);
    const [from, to] = [i - reach, i + reach + 1];
    return (sums[to] - sums[from]) / (counts[to] - counts[from]); // NaN if none has a value
  });
}

// What can be drawn of a group: its runs and, if they have a step in common, their mean.
function drawnGroup(group, packed, block) {
  const numbers = group.runs.filter((number) => block.runs[number]);
  const smooth = (curve) => curve && smoothed(block.values(curve), view.smooth);
  const runs = numbers.map((number) => ({ run: report.runs[number], x: runAxis(number, view.x), values: smooth(block.runs[number]) }));
  if (!packed.mean) return { group, runs, curve: null };
  const x = groupAxis(evenly(packed.steps), numbers);
  const curve = { x, mean: smooth(packed.mean), low: smooth(packed.low), high: smooth(packed.high), raw: view.smooth ? block.values(packed.mean) : null };
  return { group, runs, curve };
}

// A column is decoded when it is first drawn, which takes a moment.
async function drawCurves() {
  const { env, measure } = view;
  const column = envNow().measures.indexOf(measure);
  const key = `${env}-${column}`;
  if (column >= 0 && !curves.blocks.has(key)) {
    curves.blocks.set(key, await curveBlock(env, column));
    if (view.env !== env || view.measure !== measure) return; // another was chosen in the meantime
  }
  drawBlock(curves.blocks.get(key));
}

function drawBlock(block) {
  const { groups } = envNow();
  const area = byId("curve-area");
  const shown = groups.filter((group) => !view.off.has(group.label));
  const all = block ? shown.map((group) => drawnGroup(group, block.groups[groups.indexOf(group)], block)) : [];
  const drawn = all.filter(({ runs, curve }) => curve || (view.seeds === "on" && runs.length));
  const focused = curves.charts.findIndex(({ root }) => root === document.activeElement);
  curves.charts = [];
  const say = (why) => area.replaceChildren(html("p", { class: "note" }, why));
  if (shown.length === 0) say("Choose a method.");
  else if (all.every(({ runs }) => runs.length === 0)) say(`These runs have no value of ${view.measure ?? "any column"}, so there is no curve to draw.`);
  else if (drawn.length === 0) say("These runs have no step in common, so they have no mean: switch Seeds on.");
  else drawCharts(area, drawn);
  byId("curve-tools").hidden = curves.charts.length === 0;
  byId("zoom-reset").disabled = !view.zoomX && !view.zoomY;
  // Charts are drawn anew; the keyboard stays where it was.
  if (focused >= 0) curves.charts[focused]?.root.focus({ preventScroll: true });
  drawCurveNote(shown, all);
  drawCurveTable(drawn.filter(({ curve }) => curve));
}

function drawCharts(area, drawn) {
  const [env, log, panels] = [envNow(), view.y === "log", view.layout === "panels"];
  curves.full = [0, Math.max(...drawn.flatMap(({ runs }) => runs.flatMap(({ run, x }) => [runEnd(run), x.at(-1)]))) || 1];
  // A link may name a range that these curves do not have.
  const x = view.zoomX && view.zoomX[0] < curves.full[1] && view.zoomX[1] > 0
    ? [Math.max(0, view.zoomX[0]), Math.min(curves.full[1], view.zoomX[1])] : curves.full;
  for (const one of drawn) {
    for (const curve of one.runs) cut(curve, x);
    if (one.curve) cut(one.curve, x);
  }
  const y = view.zoomY && (!log || view.zoomY[0] > 0) ? view.zoomY : yRange(drawn, x, log);
  const width = panels ? 320 : Math.max(300, area.clientWidth);
  const title = titleOf(view.measure);
  curves.charts = (panels ? drawn.map((one) => [one]) : [drawn]).map((list) => {
    const ends = list.map(({ group, curve }) => `${group.label} ${written(curve?.mean.at(-1))}`).join(", ");
    const made = chart({
      width,
      height: panels ? 200 : Math.round(Math.min(430, Math.max(260, width * 0.46))),
      x, y, log, compact: panels,
      xName: panels ? null : X_NAMES[view.x],
      yName: panels ? null : title,
      label: `${env.name}, ${title} over ${X_NAMES[view.x]}. At the end: ${ends}.`,
    });
    list.forEach((one) => drawBand(made, one, log, list.length));
    list.forEach((one) => drawLines(made, one));
    if (list.length === 1) drawReference(made, list[0].group);
    return { ...made, list, grid: list.flatMap(({ curve }) => (curve ? [curve.x] : [])).reduce((a, b) => (a.length >= b.length ? a : b), []), ...cursorOf(made) };
  });
  const boxes = curves.charts.map(({ root, readout, list: [{ group, runs }] }) => html("figure", { class: "chart-box" },
    panels ? html("h3", {}, swatch(group.label), group.label, " ", small(plural(runs.length, "seed"))) : null, root, readout));
  area.replaceChildren(html("div", { class: panels ? "small-multiples" : undefined }, ...boxes));
}

// Whether a value lies within [low, high], apart from rounding.
const within = (value, [low, high]) => Math.abs(value - (low + high) / 2) <= ((high - low) / 2) * (1 + 1e-9);

// Keep the points within [low, high], and one on either side.
function cut(curve, [low, high]) {
  const [from, to] = [Math.max(0, nearest(curve.x, low) - 1), nearest(curve.x, high) + 2];
  for (const [name, values] of Object.entries(curve)) if (ArrayBuffer.isView(values)) curve[name] = values.subarray(from, to);
}

// The range of what is drawn within x, with 0 unless more than half of the axis would be empty.
function yRange(drawn, x, log) {
  const lines = drawn.flatMap(({ runs, curve }) => [
    ...(curve ? [[curve, curve.mean]] : []),
    ...(curve?.low && view.interval === "on" ? [[curve, curve.low], [curve, curve.high]] : []),
    ...(view.seeds === "on" ? runs.map((one) => [one, one.values]) : []),
  ]);
  const [low, high] = extent(lines.map(([curve, values]) => values.filter((value, i) => within(curve.x[i], x) && (!log || value > 0))));
  if (log) return low > 0 ? [low / 1.15, high * 1.15] : [0.1, 1];
  const from = low > 0 && low < high - low ? 0 : low;
  const to = high < 0 && -high < high - low ? 0 : high;
  const room = (to - from) * 0.05;
  return [from === 0 ? 0 : from - room, to === 0 ? 0 : to + room];
}

function drawBand({ plot, scale, y }, { group, curve }, log, count) {
  if (!curve?.low || view.interval === "off") return;
  // A logarithmic axis has no place for 0: the band reaches its lower end instead.
  const low = log ? curve.low.map((value) => (value > 0 ? value : y[0])) : curve.low;
  const style = { fill: colourOf(group.label), opacity: String(Math.min(0.16, 1.3 / count)) };
  plot.append(svg("path", { class: "band", "data-label": group.label, d: bandPath(curve.x, low, curve.high, scale), style }));
}

function drawLines({ plot, scale }, { group, runs, curve }) {
  const colour = colourOf(group.label);
  const add = (tag, attributes, ...children) => plot.append(svg(tag, { "data-label": group.label, ...attributes }, ...children));
  if (view.seeds === "on") {
    for (const { run, x, values } of runs) {
      add("path", { class: "seed", d: linePath(x, values, scale), style: { stroke: colour } },
        svg("title", {}, `${group.label}, seed ${run.seed}${run.finished ? "" : ", not finished"}`));
      const end = values.findLastIndex((value) => !Number.isNaN(value));
      // An open ring marks a run that is not finished.
      if (!run.finished && end >= 0) add("circle", { class: "open-end", cx: scale.x(x[end]), cy: scale.y(values[end]), r: 3.5, style: { stroke: colour } });
    }
  }
  if (!curve) return;
  if (curve.raw) add("path", { class: "raw", d: linePath(curve.x, curve.raw, scale), style: { stroke: colour } });
  add("path", { class: "mean", d: linePath(curve.x, curve.mean, scale), style: { stroke: colour, strokeDasharray: dashOf(group.label) } });
  // A single point is not visible as a line.
  if (curve.x.length === 1) add("circle", { cx: scale.x(curve.x[0]), cy: scale.y(curve.mean[0]), r: 4, style: { fill: colour } });
}

// Make all other groups pale while the pointer is on the name of one.
function emphasise(label) {
  for (const part of byId("curve-area").querySelectorAll("[data-label]")) part.classList.toggle("pale", label !== null && part.dataset.label !== label);
}

// The published return of the group, as a line or, if it lies above the chart, as text only.
function drawReference({ root, plot, scale, margin, inner, y }, group) {
  const { source, steps } = envNow().reference;
  const value = group.row.reference;
  if (view.measure !== "return_mean" || value === null || value < y[0]) return;
  const later = steps && group.runs.every((number) => report.runs[number].reached < steps * 0.99) ? `, at ${stepText(steps)} steps` : "";
  const above = value > y[1];
  if (!above) plot.append(svg("line", { class: "reference-line", x1: margin.left, x2: margin.left + inner.width, y1: scale.y(value), y2: scale.y(value) }));
  const at = above ? margin.top + 10 : Math.max(margin.top + 10, scale.y(value) - 5);
  root.append(svg("text", { class: "halo", x: margin.left + 4, y: at }, `${above ? "↑ " : ""}${source} ${written(value)}${later}`));
}

// A vertical line through a chart, with the values of all groups there.
function cursorOf({ root, scale, margin, inner, width, upright }) {
  const marks = root.appendChild(svg("g"));
  const readout = html("div", { class: "readout", hidden: true });
  root.setAttribute("tabindex", "0");
  root.setAttribute("aria-keyshortcuts", "ArrowLeft ArrowRight Shift+ArrowLeft Shift+ArrowRight + - 0");
  const hide = () => { marks.replaceChildren(); readout.hidden = true; };
  const show = (list, value) => {
    const at = scale.x(value);
    const rows = list
      .filter(({ curve }) => curve && within(value, [curve.x[0], curve.x.at(-1)]))
      .map(({ group, curve }) => ({ group, curve, k: nearest(curve.x, value) }))
      .sort((a, b) => b.curve.mean[b.k] - a.curve.mean[a.k]);
    marks.replaceChildren(upright(at, { class: "cursor" }), ...rows
      .map(({ group, curve, k }) => [colourOf(group.label), scale.y(curve.mean[k])])
      .filter(([, y]) => y >= margin.top && y <= margin.top + inner.height)
      .map(([fill, cy]) => svg("circle", { cx: at, cy, r: 3.5, style: { fill } })));
    readout.hidden = false;
    readout.replaceChildren(html("h4", {}, X_TEXTS[view.x](value)), ...rows.map(({ group, curve, k }) =>
      html("div", {}, swatch(group.label), html("span", {}, group.label),
        html("span", {}, written(curve.mean[k]) + (curve.low && view.interval === "on" ? ` [${written(curve.low[k])}, ${written(curve.high[k])}]` : "")))));
    // On the side away from the cursor.
    const right = at < margin.left + inner.width / 2;
    readout.style.left = right ? "auto" : `${(margin.left / width) * 100 + 1}%`;
    readout.style.right = right ? "1%" : "auto";
  };
  return { readout, show, hide };
}

const hasReference = (env) => env.groups.some((group) => group.row.reference !== null);

function drawCurveNote(shown, all) {
  const env = envNow();
  const parts = ["Line: mean over seeds; it ends where the shortest run ends."];
  if (view.interval === "on") parts.push("Band: 95 % bootstrap interval of the mean; a group with one seed has none.");
  if (view.seeds === "on") parts.push("Thin lines: one seed each.");
  if (view.x !== "steps") parts.push("Seeds are averaged at equal steps; a point of the mean lies at the mean of their " + (view.x === "hours" ? "times." : "iterations."));
  if (hasReference(env) && (view.layout === "panels" || shown.length === 1) && view.measure === "return_mean") parts.push(`Dashed, or written with ↑ where it lies above the chart: the value reported by the ${env.reference.source}.`);
  parts.push(env.together > 1 ? `Thinned: each point is the mean over ${env.together} iterations.` : "Every iteration is drawn.");
  if (view.smooth) parts.push(`Smoothed: mean over ${plural((2 * view.smooth + 1) * env.together, "iteration")}, also for the ends of the interval; pale: not smoothed.`);
  if (view.y === "log") parts.push("Values of 0 and below have no place on a logarithmic axis.");
  const open = shown.reduce((sum, group) => sum + group.row.unfinished, 0);
  if (open) parts.push(`${plural(open, "run")} not finished${view.seeds === "on" ? " (open ring)" : ""}.`);
  const silent = shown.reduce((sum, group) => sum + group.row.silent, 0);
  if (silent && view.measure?.startsWith("return")) parts.push(`${plural(silent, "run")} without a finished episode ${silent === 1 ? "has" : "have"} no return to draw.`);
  const without = all.filter(({ runs }) => runs.length === 0).map(({ group }) => group.label);
  if (without.length && without.length < shown.length) parts.push(`Without a value of ${view.measure}: ${without.join(", ")}.`);
  byId("curve-note").textContent = parts.join(" ");
}

// The text alternative: mean and interval at ten places of the axis as it is shown.
function drawCurveTable(known) {
  byId("curve-table").closest("details").hidden = known.length === 0;
  const [from, to] = [Math.max(0, Math.min(...known.map(({ curve }) => curve.x[0]))), Math.max(0, ...known.map(({ curve }) => curve.x.at(-1)))];
  const start = view.zoomX ? from : 0;
  const places = Array.from({ length: 10 }, (_, i) => start + ((i + 1) / 10) * (to - start));
  const cell = ({ curve }, place) => {
    if (place > curve.x.at(-1) * 1.001) return html("td", {}, "–");
    const k = nearest(curve.x, place);
    return html("td", {}, written(curve.mean[k]), curve.low && small(`[${written(curve.low[k])}, ${written(curve.high[k])}]`));
  };
  byId("curve-table").replaceChildren(table(
    `${titleOf(view.measure)} on ${envNow().name}: mean over seeds [95 % interval]`,
    [[X_NAMES[view.x]], ...known.map(({ group }) => [group.label])],
    places.map((place) => html("tr", {}, html("th", { scope: "row" }, view.x === "hours" ? written(place) : stepText(place)), ...known.map((one) => cell(one, place)))),
  ));
}

function drawMethodChips() {
  const labels = envNow().groups.map((group) => group.label);
  byId("methods").replaceChildren(...labels.map((label) => {
    const box = html("input", { type: "checkbox", checked: !view.off.has(label) });
    box.addEventListener("change", () => {
      const off = new Set(view.off);
      off[box.checked ? "delete" : "add"](label);
      change({ off });
    });
    const others = labels.filter((other) => other !== label);
    const alone = !view.off.has(label) && others.every((other) => view.off.has(other));
    const solo = html("button", { type: "button", class: "solo", "aria-label": `Only ${label}`, "aria-pressed": String(alone) }, "solo");
    solo.addEventListener("click", () => change({ off: new Set(alone ? [] : others) }));
    const chip = html("div", { class: "chip" }, html("label", {}, box, html("span", {}, swatch(label), label)), others.length ? solo : null);
    chip.addEventListener("pointerenter", () => emphasise(label));
    chip.addEventListener("pointerleave", () => emphasise(null));
    return chip;
  }));
}

// The columns of metrics.csv that some run of the environment has, by what stands before the slash.
function drawMeasures() {
  const families = Map.groupBy(envNow().measures, (name) => (name.includes("/") ? name.split("/")[0] : "run"));
  byId("measure").replaceChildren(...[...families].map(([family, names]) => html("optgroup", { label: family },
    ...names.map((name) => html("option", { value: name }, titleOf(name))))));
}

// The controls as the view has them.
function showCurveControls() {
  byId("measure").value = view.measure ?? "";
  byId("x").value = view.x;
  byId("smooth").value = String(SMOOTHING.indexOf(view.smooth));
  byId("smooth-text").textContent = view.smooth ? `${plural((2 * view.smooth + 1) * envNow().together, "iteration")}` : "off";
  byId("smooth").setAttribute("aria-valuetext", byId("smooth-text").textContent);
  for (const name of ["y", "layout"]) byId(name).querySelector(`[value="${view[name]}"]`).checked = true;
  for (const name of ["seeds", "interval"]) byId(name).checked = view[name] === "on";
  // Chips are drawn anew; the keyboard stays where it was.
  const focusable = () => [...byId("methods").querySelectorAll("input, button")];
  const focused = focusable().indexOf(document.activeElement);
  drawMethodChips();
  focusable()[focused]?.focus({ preventScroll: true });
}

function startCurves() {
  const listen = (name, event, parts, gestureName) => byId(name).addEventListener(event, ({ target }) => change(parts(target), gestureName));
  listen("measure", "change", ({ value }) => ({ measure: value }));
  listen("x", "change", ({ value }) => ({ x: value }));
  listen("y", "change", ({ value }) => ({ y: value }));
  listen("layout", "change", ({ value }) => ({ layout: value }));
  listen("seeds", "change", ({ checked }) => ({ seeds: checked ? "on" : "off" }));
  listen("interval", "change", ({ checked }) => ({ interval: checked ? "on" : "off" }));
  listen("smooth", "input", ({ value }) => ({ smooth: SMOOTHING[Number(value)] }), "smooth");
  listen("all-methods", "click", () => ({ off: new Set() }));
  listen("no-methods", "click", () => ({ off: new Set(envNow().groups.map((group) => group.label)) }));
  byId("smooth").max = String(SMOOTHING.length - 1);
  onResize(byId("curve-area"), drawCurves);
}
