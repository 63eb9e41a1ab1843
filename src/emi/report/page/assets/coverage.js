// Coverage: maps of the visits and of the bonus of every group, at a time of training.

const coverage = { env: null, found: null, time: 0, playing: false, cursor: null, scale: null };
const COVERAGE_SECONDS = 6; // that playing takes
const SQUARE = 4 / 3; // width / height of a map whose axes have different units

// The maps of one environment: JSON that describes them, then visits and bonus of each group.
const decodedCoverage = once(async (env) => {
  const [first, second] = await Promise.all(byId(`coverage-${env}`).textContent.split("\n").map(inflated));
  const found = JSON.parse(new TextDecoder().decode(first));
  let at = 0;
  const take = (kind, count) => {
    const array = new kind(second, at, count);
    at += 4 * count;
    return array;
  };
  for (const group of found.groups) {
    group.cellCount = group.plane ? group.plane.shape[0] * group.plane.shape[1] : 0;
    const count = found.steps.length * group.cellCount;
    [group.visits, group.bonus] = [take(Uint32Array, count), take(Float32Array, count)];
  }
  return found;
});

async function showCoverage() {
  playCoverage(false);
  const env = view.env;
  const has = report.coverage.includes(env);
  byId("coverage").hidden = !has;
  document.querySelector('nav a[href="#coverage"]').hidden = !has;
  coverage.found = null;
  if (!has) return;
  const found = await decodedCoverage(env);
  if (view.env !== env) return; // another was chosen in the meantime
  Object.assign(coverage, { env, found });
  const slider = byId("coverage-time");
  slider.max = String(found.steps.length - 1);
  drawCoverageTable();
  makeMaps();
  drawGrowth();
  goToTime(found.steps.length - 1);
}

// A figure for each group that has a map.
function makeMaps() {
  const mapped = coverage.found.groups.filter((group) => group.plane);
  byId("coverage-maps").replaceChildren(...mapped.map((group) => {
    const { shape, x, y, free } = group.plane;
    const ratio = free ? Math.min(3, (x[1] - x[0]) / (y[1] - y[0])) : SQUARE;
    group.canvas = html("canvas", { width: shape[0], height: shape[1], role: "img", style: { aspectRatio: String(ratio) } });
    group.caption = html("small");
    return html("figure", {}, html("figcaption", {}, swatch(group.label), group.label, group.caption), group.canvas);
  }));
  for (const name of ["coverage-maps", "coverage-shown", "coverage-span"]) byId(name).hidden = mapped.length === 0;
  document.querySelector("#coverage .colour-bar").hidden = mapped.length === 0;
  const plane = mapped[0]?.plane;
  const range = ([low, high]) => `${written(low)} to ${written(high)}`;
  const axes = plane && `To the right ${plane.names[0]}, ${range(plane.x)}${plane.names[1] ? `; upwards ${plane.names[1]}, ${range(plane.y)}` : ""}.`;
  byId("coverage-note").textContent = !plane ? "Images without positions have no common map: distinct frames are counted."
    : coverage.found.shared
      ? `${axes} Every visited state of all seeds is counted; a state belongs to the step that reached it. Empty cells were not visited${plane.free?.includes(0) ? ", grey ones are walls" : ""}.`
      : "Sampled frames in the φ-space of the end of one run of each method; these spaces cannot be compared with each other.";
}

const checkedValue = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

// Visits and mean bonus of each cell of a group until a time, or only then.
function mapAt(group, time, until) {
  const size = group.cellCount;
  const [visits, bonus] = [new Float64Array(size), new Float64Array(size)];
  for (let t = until ? 0 : time; t <= time; t++) {
    for (let i = 0; i < size; i++) {
      visits[i] += group.visits[t * size + i];
      bonus[i] += group.bonus[t * size + i];
    }
  }
  return { visits, bonus: bonus.map((sum, i) => (visits[i] ? sum / visits[i] : NaN)) };
}

// The most visits per seed that a cell has at any time: the colours mean the same at all times.
const mostVisits = once((env, until) => {
  let most = 1;
  for (const group of coverage.found.groups) {
    const times = until ? [coverage.found.steps.length - 1] : coverage.found.steps.keys();
    for (const time of times) most = Math.max(most, ...mapAt(group, time, until).visits.map((count) => count / group.seeds));
  }
  return most;
});

function drawMaps() {
  const { found, time, env } = coverage;
  if (!found) return;
  const [dark, until, shown] = [isDark(), checkedValue("coverage-span") === "until", checkedValue("coverage-shown")];
  const most = mostVisits(env, until);
  for (const group of found.groups.filter((one) => one.plane)) {
    const map = mapAt(group, time, until);
    const known = map.bonus.filter((value) => !Number.isNaN(value));
    const range = known.length ? colourRange(known, "bonus") : { low: 0, high: 0 };
    const share = shown === "visits"
      ? (i) => Math.log1p(map.visits[i] / group.seeds) / Math.log1p(most)
      : (i) => (range.high > range.low ? (map.bonus[i] - range.low) / (range.high - range.low) : 0);
    paintMap(group, map.visits, share, dark);
    const cells = map.visits.reduce((sum, count) => sum + (count > 0), 0);
    const all = group.plane.free && group.plane.free.reduce((sum, free) => sum + free, 0);
    const where = `${whole(cells)}${all ? ` of ${whole(all)}` : ""} cells${group.seeds > 1 ? " by any seed" : ""}`;
    group.caption.textContent = shown === "visits" ? where : known.some((value) => value !== 0) ? `bonus ${written(range.low)} to ${written(range.high)}` : "no bonus";
    group.canvas.setAttribute("aria-label", `Map of ${group.label}: ${group.caption.textContent}`);
  }
  const bar = byId("coverage-bar").getContext("2d");
  for (let i = 0; i < 256; i++) {
    bar.fillStyle = sequential(i / 255, dark);
    bar.fillRect(i, 0, 1, 1);
  }
  const visits = shown === "visits";
  byId("coverage-low").textContent = visits ? "1" : "low";
  byId("coverage-high").textContent = visits ? written(most) : "high";
  byId("coverage-name").textContent = visits ? "visits per seed, logarithmic" : "mean bonus of a visit, in the range of each map";
}

// One pixel per cell; the style sheet enlarges them. Rows are counted from above.
function paintMap(group, visits, share, dark) {
  const [nx, ny] = group.plane.shape;
  const context = group.canvas.getContext("2d");
  context.clearRect(0, 0, nx, ny);
  const wall = ink("line");
  for (let x = 0; x < nx; x++) {
    for (let y = 0; y < ny; y++) {
      const i = x * ny + y;
      if (visits[i] > 0) context.fillStyle = sequential(Math.max(0, Math.min(1, share(i))), dark);
      else if (group.plane.free && !group.plane.free[i]) context.fillStyle = wall;
      else continue;
      context.fillRect(x, ny - 1 - y, 1, 1);
    }
  }
}

// Cells visited, or distinct frames, up to each time: the mean over seeds.
function drawGrowth() {
  const { found } = coverage;
  if (!found) return;
  const name = found.groups.some((group) => group.cells.some((run) => run.length)) ? "cells" : "frames";
  const lines = found.groups.map((group) => {
    const runs = group[name];
    const length = Math.min(...runs.map((run) => run.length));
    const mean = Array.from({ length }, (_, t) => runs.reduce((sum, run) => sum + run[t], 0) / runs.length);
    return { label: group.label, steps: [0, ...group.runSteps[0].slice(0, length)], values: [0, ...mean] };
  });
  const area = byId("coverage-growth");
  const { root, plot, scale, upright, place } = chart({
    width: Math.max(300, area.clientWidth),
    height: 250,
    x: [0, found.steps.at(-1)],
    y: [0, Math.max(1, ...lines.flatMap((line) => line.values)) * 1.06],
    xName: "environment steps",
    yName: name === "cells" ? "cells visited" : "distinct frames",
    label: `${name === "cells" ? "Cells visited" : "Distinct frames"} over training. ${lines.map((line) => `${line.label}: ${whole(line.values.at(-1))}`).join("; ")}.`,
  });
  for (const { label, steps, values } of lines) {
    plot.append(svg("path", { class: "mean", d: linePath(steps, values, scale), style: { stroke: colourOf(label), strokeDasharray: dashOf(label) } }));
  }
  coverage.scale = scale;
  coverage.cursor = upright(0, { class: "cursor" });
  root.append(coverage.cursor);
  root.style.cursor = "pointer";
  root.addEventListener("click", (event) => {
    playCoverage(false);
    goToTime(nearest(found.steps, scale.toX(place(event)[0])));
  });
  area.replaceChildren(root);
  moveCoverageCursor();
}

function moveCoverageCursor() {
  const at = coverage.scale.x(coverage.found.steps[coverage.time]);
  coverage.cursor.setAttribute("x1", at);
  coverage.cursor.setAttribute("x2", at);
}

function drawCoverageTable() {
  const { rows } = coverage.found;
  const names = Object.keys(rows[0]).filter((name) => rows.some((row) => row[name] !== "–"));
  byId("coverage-table").replaceChildren(table("At the end of training, means over seeds", names.map((name) => [name, null]),
    rows.map((row) => html("tr", {}, ...names.map((name, k) => (k === 0
      ? html("th", { scope: "row" }, swatch(row[name]), row[name]) : html("td", {}, row[name])))))));
}

function goToTime(time) {
  coverage.time = time;
  const { steps } = coverage.found;
  const slider = byId("coverage-time");
  slider.value = String(time);
  const text = `${stepText(steps[time])} of ${stepText(steps.at(-1))} steps`;
  slider.setAttribute("aria-valuetext", text);
  byId("coverage-at").textContent = text;
  drawMaps();
  moveCoverageCursor();
}

function playCoverage(on) {
  coverage.playing = on;
  byId("coverage-play").textContent = on ? "Pause" : "Play";
  byId("coverage-play").setAttribute("aria-pressed", String(on));
  if (!on) return;
  const last = coverage.found.steps.length - 1;
  const from = coverage.time >= last ? 0 : coverage.time;
  const began = performance.now();
  const tick = (now) => {
    if (!coverage.playing) return;
    const gone = Math.max(0, now - began); // the time of a frame can be earlier
    const time = Math.min(last, from + Math.floor((gone / 1000 / COVERAGE_SECONDS) * (last + 1)));
    if (time !== coverage.time) goToTime(time);
    if (time >= last) playCoverage(false);
    else requestAnimationFrame(tick);
  };
  goToTime(from);
  requestAnimationFrame(tick);
}

function startCoverage() {
  byId("coverage-time").addEventListener("input", (event) => {
    playCoverage(false);
    goToTime(Number(event.target.value));
  });
  byId("coverage-play").addEventListener("click", () => playCoverage(!coverage.playing));
  for (const name of ["coverage-shown", "coverage-span"]) byId(name).addEventListener("change", drawMaps);
  onResize(byId("coverage-growth"), drawGrowth);
}
