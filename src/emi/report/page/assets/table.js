// The table of final returns, and the tests against a chosen group.

function drawTable() {
  const env = envNow();
  const number = (value) => written(value, env.decimals);
  const interval = (low, high) => `[${number(low)}, ${number(high)}]`;
  const reference = env.groups[view.base];
  const compares = env.groups.length > 1;
  const solves = env.solvedAbove !== null;
  const spread = extent(env.groups.map((group) => group.row.mean ?? []), [0, 0]);

  const cell = (first, second, known = false) => html("td", { class: known ? "known" : undefined }, first, small(second));
  const several = (row) => row.seeds - row.silent > 1;
  // Columns: name, the smaller text below it, and the cell of a group or null if another covers it.
  const columns = [
    ["method", null, ({ label, row }) => html("th", { scope: "row" }, swatch(label), label,
      row.unfinished ? html("small", { class: "mark" }, `${row.unfinished} not finished`) : null,
      row.silent ? html("small", { class: "mark" }, `${row.silent} without a finished episode`) : null)],
    ["seeds", null, ({ row }) => cell(String(row.seeds))],
    ["mean", "95 % interval", ({ label, row }) => cell(row.mean ? html("div", { class: "mean-cell" }, intervalPicture(row.mean, spread, label),
      html("span", {}, number(row.mean[0]), small(several(row) ? interval(row.mean[1], row.mean[2]) : "one seed"))) : "–")],
    ["IQM", "95 % interval", ({ row }) => (row.iqm ? cell(number(row.iqm[0]), several(row) && interval(row.iqm[1], row.iqm[2])) : cell("–"))],
    [`last ${report.lastIterations}`, "iterations, mean", ({ row }) => cell(number(row.late))],
  ];
  if (solves) columns.push(["solved", `above ${env.solvedAbove}`,
    ({ row }) => (row.solved ? cell(`${row.solved[0]} of ${row.solved[1]}`, `[${row.solved[2].toFixed(2)}, ${row.solved[3].toFixed(2)}]`) : cell("–"))]);
  columns.push(["first reward", "median steps",
    ({ row: { first } }) => cell(first.median === null ? "not reached" : stepText(first.median), `${first.seen} of ${first.runs}`)]);
  if (compares) {
    const without = (group) => html("td", { colspan: 3 }, group === reference ? "compared with" : "needs two seeds of each");
    const pair = (group) => env.pairs[env.groups.indexOf(group)][view.base];
    const compared = (show, otherwise = () => null) => (group) => (pair(group) ? show(pair(group)) : otherwise(group));
    columns.push(
      [`minus ${reference.label}`, "95 % interval", compared((pair) => cell(number(pair.difference), interval(pair.low, pair.high)), without)],
      ["p", "after Holm", compared((pair) => cell(chance(pair.p), chance(pair.holm), pair.holm < 0.05))],
      [`beats ${reference.label}`, "95 % interval",
        compared((pair) => cell(`${Math.round(pair.better * 100)} %`, `[${Math.round(pair.betterLow * 100)}, ${Math.round(pair.betterHigh * 100)}] %`))],
    );
  }
  if (hasReference(env)) columns.push([env.reference.source, env.reference.steps && `at ${stepText(env.reference.steps)}`,
    ({ row }) => cell(number(row.reference))]);
  byId("table-area").replaceChildren(table(`${env.name}: return of the last iteration in which an episode ended`, columns,
    env.groups.map((group) => html("tr", { class: compares && group === reference ? "reference" : undefined }, ...columns.map((column) => column[2](group))))));
  drawTableNote(env, compares, solves);
}

const chance = (p) => (p === null || p === undefined ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3));

// The mean as a dot on its interval; all rows have the same scale.
function intervalPicture([mean, low, high], [from, to], label) {
  const at = (value) => 5 + ((value - from) / (to - from)) * 64;
  const colour = colourOf(label);
  return svg("svg", { class: "interval", viewBox: "0 0 74 18", "aria-hidden": "true" },
    svg("line", { x1: at(0), x2: at(0), y1: 1, y2: 17, style: { stroke: "var(--line)" } }),
    svg("line", { x1: at(low), x2: at(high), y1: 9, y2: 9, style: { stroke: colour, strokeWidth: "3", opacity: ".45", strokeLinecap: "round" } }),
    svg("circle", { cx: at(mean), cy: 9, r: 4, style: { fill: colour } }));
}

function drawTableNote(env, compares, solves) {
  const parts = ["IQM: mean of the middle half of the seeds. Intervals of mean and IQM are percentile bootstraps over seeds"
    + (solves ? "; that of the solve rate is Wilson's. The threshold for solved is our choice." : ".")
    + " The median of the first reward is the Kaplan-Meier estimate: a run without a reward counts for as long as it lasted."];
  if (compares) parts.push("p: two-sided Welch's t-test, before and after Holm's correction for all groups compared with the chosen one; bold if below 0.05 after the correction. Beats: probability of improvement, the share of pairs of runs in which this group ends above the chosen one; ties count half. A few seeds can only show large differences.");
  if (env.groups.some((group) => group.row.silent)) parts.push("Runs without a finished episode have no return and are left out of the statistics.");
  if (env.groups.some((group) => group.row.unfinished)) parts.push("Runs that are not finished count with their latest return.");
  byId("table-note").replaceChildren(...parts.map((text) => html("p", {}, text)));
}

function startTable() {
  byId("reference").addEventListener("change", (event) => change({ base: Number(event.target.value) }));
}

function drawReferenceChoice() {
  const { groups } = envNow();
  options(byId("reference"), groups.map((group, k) => [k, group.label]));
  byId("reference").closest(".controls").hidden = groups.length < 2;
}
