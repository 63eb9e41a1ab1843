// Learning curves: the means of all groups in one chart, or every seed in a panel per group.

const curves = { env: 0, measure: "return_mean", view: "mean", hidden: new Set(), cursor: null };

const runCurve = once((number, measure) => {
  const run = report.runs[number];
  return { steps: stepCounts(run.steps), values: run.curves[measure] ? quantised(run.curves[measure]) : new Float64Array() };
});
const groupCurve = once((env, group, measure) => {
  const packed = report.envs[env].groups[group].curves[measure];
  if (!packed) return null;
  return {
    steps: stepCounts(packed.steps),
    mean: quantised(packed.mean),
    low: packed.low && quantised(packed.low),
    high: packed.high && quantised(packed.high),
  };
});

// The groups that are switched on, each with its mean curve if it has one.
function shownGroups() {
  return report.envs[curves.env].groups
    .map((group, k) => ({ group, curve: groupCurve(curves.env, k, curves.measure) }))
    .filter(({ group }) => !curves.hidden.has(group.label));
}

function drawCurves() {
  const area = byId("curve-area");
  const shown = shownGroups();
  const known = shown.filter(({ curve }) => curve);
  const say = (why) => area.replaceChildren(html("p", { class: "note" }, why));
  const drawable = shown.filter(({ group }) => runsOf(group).some(({ values }) => values.some((value) => !Number.isNaN(value))));
  if (shown.length === 0) say("Choose a method.");
  else if (drawable.length === 0) say("No episode has ended in these runs, so there is no curve to draw.");
  else if (curves.view === "seeds") drawSeeds(area, drawable);
  else if (known.length === 0) say("These runs have no step in common, so they have no mean: choose Every seed.");
  else drawMeans(area, known);
  drawCurveNote(shown);
  drawCurveTable(known);
}

function drawMeans(area, known) {
  const env = report.envs[curves.env];
  const name = report.measures[curves.measure];
  const width = Math.max(300, area.clientWidth);
  const last = lastStep(known);
  const y = extent(known.flatMap(({ curve }) => [curve.mean, curve.low ?? [], curve.high ?? []]), [0, 0]);
  const ends = known.map(({ group, curve }) => `${group.label} ${written(curve.mean.at(-1))}`).join(", ");
  const { root, scale, margin, inner, upright, valueAt } = chart({
    width,
    height: Math.round(Math.min(430, Math.max(260, width * 0.46))),
    x: [0, last],
    y: pad(y),
    xName: "environment steps",
    yName: name,
    xText: (values) => values.map(stepText),
    label: `Learning curves on ${env.name}, ${name} over steps. At the end: ${ends}.`,
  });
  for (const { group, curve } of known) {
    if (curve.low) root.append(svg("path", { class: "band", d: bandPath(curve.steps, curve.low, curve.high, scale), style: { fill: colourOf(group.label) } }));
  }
  for (const { group, curve } of known) root.append(...meanLine(group, curve, scale));
  const cursor = root.appendChild(svg("g"));
  const readout = html("div", { class: "readout", hidden: true });
  root.setAttribute("tabindex", "0");
  root.setAttribute("aria-keyshortcuts", "ArrowLeft ArrowRight");
  area.replaceChildren(root, readout);

  const grid = known.reduce((a, b) => (a.curve.steps.length >= b.curve.steps.length ? a : b)).curve.steps;
  const show = (index) => {
    curves.cursor = index;
    const step = grid[index];
    const at = scale.x(step);
    cursor.replaceChildren(upright(at, { class: "cursor" }));
    const rows = known
      .filter(({ curve }) => step <= curve.steps.at(-1) && step >= curve.steps[0])
      .map(({ group, curve }) => ({ group, curve, k: nearest(curve.steps, step) }))
      .sort((a, b) => b.curve.mean[b.k] - a.curve.mean[a.k]);
    for (const { group, curve, k } of rows) {
      cursor.append(svg("circle", { cx: at, cy: scale.y(curve.mean[k]), r: 3.5, style: { fill: colourOf(group.label) } }));
    }
    readout.hidden = false;
    readout.replaceChildren(
      html("h4", {}, `${stepText(step)} steps`),
      ...rows.map(({ group, curve, k }) =>
        html("div", {}, swatch(group.label), html("span", {}, group.label),
          html("span", {}, written(curve.mean[k]) + (curve.low ? ` [${written(curve.low[k])}, ${written(curve.high[k])}]` : "")))),
    );
    // On the side away from the pointer.
    const right = at < margin.left + inner.width / 2;
    readout.style.left = right ? "auto" : `${(margin.left / width) * 100 + 1}%`;
    readout.style.right = right ? "1%" : "auto";
  };
  // The last position of the cursor; these curves may be shorter than the previous ones.
  const place = () => Math.min(curves.cursor ?? grid.length - 1, grid.length - 1);
  const hide = () => {
    cursor.replaceChildren();
    readout.hidden = true;
  };
  root.addEventListener("pointermove", (event) => show(nearest(grid, valueAt(event))));
  root.addEventListener("pointerleave", () => document.activeElement === root || hide());
  root.addEventListener("blur", hide);
  root.addEventListener("focus", () => root.matches(":focus-visible") && show(place()));
  root.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    show(Math.min(grid.length - 1, Math.max(0, place() + by * (event.shiftKey ? 10 : 1))));
  });
}

function meanLine(group, curve, scale) {
  const style = { stroke: colourOf(group.label), strokeDasharray: dashOf(group.label) };
  const parts = [svg("path", { class: "mean", d: linePath(curve.steps, curve.mean, scale), style })];
  // A single point is not visible as a line.
  if (curve.steps.length === 1) parts.push(svg("circle", { cx: scale.x(curve.steps[0]), cy: scale.y(curve.mean[0]), r: 4, style: { fill: colourOf(group.label) } }));
  return parts;
}

const runsOf = (group) => group.runs.map((number) => ({ run: report.runs[number], ...runCurve(number, curves.measure) }));

function drawSeeds(area, drawable) {
  const env = report.envs[curves.env];
  const all = drawable.flatMap(({ group }) => runsOf(group));
  const y = pad(extent(all.map((one) => one.values), [0, 0]));
  const last = lastStep(drawable);
  const panels = drawable.map(({ group, curve }) => {
    const runs = runsOf(group);
    const ends = runs.map(({ run }) => `seed ${run.seed}: ${written(run.final)}`).join(", ");
    const { root, scale, margin, inner } = chart({
      width: 300, height: 190, x: [0, last], y, compact: true, xText: (values) => values.map(stepText),
      label: `${group.label} on ${env.name}, every seed. Final returns: ${ends}.`,
    });
    for (const one of runs) {
      const colour = colourOf(group.label);
      root.append(svg("path", { class: "seed", d: linePath(one.steps, one.values, scale), style: { stroke: colour } },
        svg("title", {}, `seed ${one.run.seed}${one.run.finished ? "" : ", not finished"}`)));
      const end = one.values.findLastIndex((value) => !Number.isNaN(value));
      // An open ring marks a run that is not finished.
      if (!one.run.finished && end >= 0) root.append(svg("circle", { cx: scale.x(one.steps[end]), cy: scale.y(one.values[end]), r: 3.5, style: { fill: "none", stroke: colour, strokeWidth: "1.5" } }));
    }
    if (curve) root.append(...meanLine(group, curve, scale));
    const value = group.row.reference;
    if (curves.measure === "return_mean" && value !== null) {
      const { source, steps } = env.reference;
      const later = steps && last < steps * 0.99 ? `, at ${stepText(steps)} steps` : "";
      const above = value > y[1]; // outside of the chart: shown as text only
      if (!above) root.append(svg("line", { class: "reference-line", x1: margin.left, x2: margin.left + inner.width, y1: scale.y(value), y2: scale.y(value) }));
      root.append(svg("text", { class: "halo", x: margin.left + 4, y: above ? margin.top + 10 : scale.y(value) - 5 }, `${above ? "↑ " : ""}${source} ${written(value)}${later}`));
    }
    return html("figure", {}, html("h3", {}, swatch(group.label), group.label, " ", html("small", {}, plural(runs.length, "seed"))), root);
  });
  area.replaceChildren(html("div", { class: "small-multiples" }, ...panels));
}

// The last point of a thinned curve lies before the end of its run.
const lastStep = (known) => Math.max(1, ...known.flatMap(({ group }) => group.runs.map((number) => report.runs[number].reached)));
const pad = ([low, high]) => [low < 0 ? low - (high - low) * 0.04 : low, high + (high - low) * 0.05];

function drawCurveNote(shown) {
  const env = report.envs[curves.env];
  const parts = [];
  if (curves.view === "mean") parts.push("Line: mean over seeds. Band: 95 % bootstrap interval of the mean (percentile bootstrap over runs); a group with one seed has none. A mean ends where its shortest run ends.");
  else parts.push(`Thin: one seed each. Thick: their mean.${hasReference(env) ? ` Dashed, or written with ↑ where it lies above the chart: the value reported by the ${env.reference.source}.` : ""}`);
  parts.push(env.together > 1
    ? `Thinned: each point is the mean over ${env.together} iterations.`
    : "Every iteration is drawn.");
  const open = shown.reduce((sum, { group }) => sum + group.row.unfinished, 0);
  if (open) parts.push(`${plural(open, "run")} not finished${curves.view === "seeds" ? " (open ring)" : ""}.`);
  const silent = shown.reduce((sum, { group }) => sum + group.row.silent, 0);
  if (silent) parts.push(`${plural(silent, "run")} without a finished episode ${silent === 1 ? "has" : "have"} no return to draw.`);
  byId("curve-note").textContent = parts.join(" ");
}

// The text alternative: mean and interval at ten steps.
function drawCurveTable(known) {
  byId("curve-table").closest("details").hidden = known.length === 0;
  const last = Math.max(0, ...known.map(({ curve }) => curve.steps.at(-1)));
  const places = Array.from({ length: 10 }, (_, i) => ((i + 1) / 10) * last);
  const cell = ({ curve }, step) => {
    if (step > curve.steps.at(-1) * 1.001) return html("td", {}, "–");
    const k = nearest(curve.steps, step);
    return html("td", {}, written(curve.mean[k]), curve.low && small(`[${written(curve.low[k])}, ${written(curve.high[k])}]`));
  };
  byId("curve-table").replaceChildren(table(
    `${report.measures[curves.measure]} on ${report.envs[curves.env].name}: mean over seeds [95 % interval]`,
    [["steps"], ...known.map(({ group }) => [group.label])],
    places.map((step) => html("tr", {}, html("th", { scope: "row" }, stepText(step)), ...known.map((one) => cell(one, step)))),
  ));
}

function drawMethodChips() {
  byId("methods").replaceChildren(...report.envs[curves.env].groups.map((group) => {
    const box = html("input", { type: "checkbox", checked: !curves.hidden.has(group.label) });
    box.addEventListener("change", () => {
      curves.hidden[box.checked ? "delete" : "add"](group.label);
      drawCurves();
    });
    return html("label", { class: "chip" }, box, html("span", {}, swatch(group.label), group.label));
  }));
}

function startCurves() {
  options(byId("measure"), Object.entries(report.measures));
  byId("measure").addEventListener("change", (event) => { curves.measure = event.target.value; drawCurves(); });
  byId("view").addEventListener("change", (event) => { curves.view = event.target.value; drawCurves(); });
  onResize(byId("curve-area"), drawCurves);
}
