// The table of final returns, and the tests against a chosen group.

const comparison = { reference: 0 };

function drawTable() {
  const env = report.envs[curves.env];
  const number = (value) => written(value, env.decimals);
  const interval = (low, high) => `[${number(low)}, ${number(high)}]`;
  const reference = env.groups[comparison.reference];
  const compares = env.groups.length > 1;
  const solves = env.solvedAbove !== null;
  const referenced = hasReference(env);
  const spread = extent(env.groups.map((group) => group.row.mean ?? []), [0, 0]);

  const head = [
    ["method"], ["seeds"], ["mean", "95 % interval"], ["IQM", "95 % interval"],
    [`last ${report.lastIterations}`, "iterations, mean"],
    ...(solves ? [["solved", `above ${env.solvedAbove}`]] : []),
    ["first reward", "median steps"],
    ...(compares ? [
      [`minus ${reference.label}`, "95 % interval"],
      ["p", "after Holm"],
      [`beats ${reference.label}`, "95 % interval"],
    ] : []),
    ...(referenced ? [[env.reference.source, env.reference.steps ? `at ${stepText(env.reference.steps)}` : null]] : []),
  ];
  const two = (first, second, known = false) => html("td", { class: known ? "known" : undefined }, first, second ? html("small", {}, second) : null);

  const rows = env.groups.map((group, k) => {
    const row = group.row;
    const pair = env.pairs[k][comparison.reference];
    const cells = [
      html("th", { scope: "row" }, swatch(group.label), group.label,
        row.unfinished ? html("small", { class: "mark" }, `${row.unfinished} not finished`) : null,
        row.silent ? html("small", { class: "mark" }, `${row.silent} without a finished episode`) : null),
      html("td", {}, String(row.seeds)),
      row.mean ? html("td", {}, html("div", { class: "mean-cell" }, intervalPicture(row.mean, spread, group.label),
        html("span", {}, number(row.mean[0]), html("small", {}, row.seeds - row.silent > 1 ? interval(row.mean[1], row.mean[2]) : "one seed")))) : two("–"),
      row.iqm ? two(number(row.iqm[0]), row.seeds - row.silent > 1 ? interval(row.iqm[1], row.iqm[2]) : null) : two("–"),
      html("td", {}, row.late === null ? "–" : number(row.late)),
    ];
    if (solves) cells.push(row.solved ? two(`${row.solved[0]} of ${row.solved[1]}`, `[${row.solved[2].toFixed(2)}, ${row.solved[3].toFixed(2)}]`) : two("–"));
    const seen = `${row.first.seen} of ${row.first.runs}`;
    cells.push(two(row.first.median === null ? "not reached" : stepText(row.first.median), seen));
    if (compares) {
      if (k === comparison.reference) cells.push(html("td", { colspan: 3 }, "compared with"));
      else if (!pair) cells.push(html("td", { colspan: 3 }, "needs two seeds of each"));
      else {
        cells.push(
          two(number(pair.difference), interval(pair.low, pair.high)),
          two(chance(pair.p), chance(pair.holm), pair.holm < 0.05),
          two(`${Math.round(pair.better * 100)} %`, `[${Math.round(pair.betterLow * 100)}, ${Math.round(pair.betterHigh * 100)}] %`),
        );
      }
    }
    if (referenced) cells.push(html("td", {}, row.reference === null ? "–" : number(row.reference)));
    return html("tr", { class: compares && k === comparison.reference ? "reference" : undefined }, ...cells);
  });
  byId("table-area").replaceChildren(html("table", {},
    html("caption", {}, `${env.name}: return of the last iteration in which an episode ended`),
    html("thead", {}, html("tr", {}, ...head.map(([name, below]) => html("th", { scope: "col" }, name, below ? html("small", {}, below) : null)))),
    html("tbody", {}, ...rows),
  ));
  drawTableNote(env, compares, solves);
}

const hasReference = (env) => env.groups.some((group) => group.row.reference !== null);
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
  byId("reference").addEventListener("change", (event) => { comparison.reference = Number(event.target.value); drawTable(); });
}

function chooseTableEnv() {
  const groups = report.envs[curves.env].groups;
  comparison.reference = 0;
  options(byId("reference"), groups.map((group, k) => [k, group.label]));
  byId("reference").closest(".controls").hidden = groups.length < 2;
}
