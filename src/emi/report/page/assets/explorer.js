// The embedding explorer: states in φ-space, one episode as a path, the selected state. There are
// two canvases: states are redrawn when all of them change, the path at every step of the episode.

const explorer = {
  number: null, // number of the sample
  episode: 0,
  place: 0, // index along the episode
  hover: null, // row under the pointer
  colour: "step",
  playing: false,
  dragged: false, // whether the pointer was dragged: then releasing it is not a click
  points: null, // pixel positions of all rows: { x, y }
  zoom: 1,
  centre: null, // of the view, in the plane; null for the centre of all states
  range: null, // visible part of the plane: { x: [low, high], y: [low, high] }
};
const COLOUR_NAMES = {
  step: "step of the episode",
  bonus: "bonus",
  return: "return from here to the end of the episode",
  error: "error norm ‖S(s, a)‖",
};
const MARGIN = { left: 58, right: 16, top: 16, bottom: 44 };
const REACH = 14; // pixels within which the pointer finds a state

const sampleNow = () => decodedSample(explorer.number);
const episodeNow = () => sampleNow().episodes[explorer.episode];
const selectedRow = () => episodeNow().start + explorer.place;

function chooseSample(number) {
  explorer.number = number;
  explorer.hover = null;
  [explorer.zoom, explorer.centre] = [1, null];
  byId("sample").value = String(number);
  const sample = sampleNow();
  options(byId("episode"), sample.episodes.map((episode, k) => [k,
    `${k + 1}: ${plural(episode.size, "step")}${episode.whole ? "" : ", cut"}, return ${written(episode.return)}`]));
  byId("frames").hidden = !sample.frames;
  const run = report.runs[sample.run];
  const axes = sample.dimensions === 2 ? "the two dimensions of φ" : sample.dimensions === 1
    ? "φ over time" : `the first two principal components of the ${sample.dimensions} dimensions of φ`;
  byId("errors-run").textContent = `${run.env}, ${run.label}, seed ${run.seed}, the episode chosen above.`;
  byId("plane-text").textContent = `${whole(sample.count)} states in ${plural(sample.episodes.length, "episode")} of the last batch of ${run.env}, ${run.label}, seed ${run.seed}; ${axes}. A cut episode continues after the sample; its return is counted up to the cut.`;
  chooseEpisode(sample.first);
  drawStates();
}

function chooseEpisode(number, place = 0) {
  explorer.episode = number;
  byId("episode").value = String(number);
  byId("position").max = String(episodeNow().size - 1);
  drawTimeline();
  goTo(place);
}

// Move along the episode; `speak` announces the state to screen readers, but not while playing.
function goTo(place, speak = false) {
  explorer.place = Math.max(0, Math.min(episodeNow().size - 1, place));
  const slider = byId("position");
  slider.value = String(explorer.place);
  slider.setAttribute("aria-valuetext", `step ${explorer.place + 1} of ${episodeNow().size}`);
  drawPath();
  moveTimelineCursor();
  showState();
  if (speak) byId("spoken").textContent = stateText(selectedRow());
}

function goToRow(row, speak = true) {
  const number = sampleNow().episodes.findIndex((one) => row >= one.start && row < one.start + one.size);
  const place = row - sampleNow().episodes[number].start;
  if (number !== explorer.episode) chooseEpisode(number, place);
  goTo(place, speak);
}

function stateText(row) {
  const sample = sampleNow();
  return `Step ${sample.step[row]}, bonus ${written(sample.bonus[row])}, return from here ${written(sample.return[row])}, error norm ${written(sample.error[row])}.`;
}

const short = (value) => minus(value.toPrecision(3));

function showState() {
  const sample = sampleNow();
  const row = explorer.hover ?? selectedRow();
  const episode = sample.episodes.findIndex((one) => row >= one.start && row < one.start + one.size);
  byId("state-title").textContent = explorer.hover === null ? "Selected state" : "State under the pointer";
  const values = {
    episode: `${episode + 1} of ${sample.episodes.length}`,
    step: whole(sample.step[row]),
    bonus: written(sample.bonus[row]),
    "return from here": written(sample.return[row]),
    "‖S(s, a)‖": written(sample.error[row]),
    [sample.dimensions === 1 ? "φ(s)" : "position"]: sample.dimensions === 1 ? written(sample.y[row]) : `${short(sample.x[row])}, ${short(sample.y[row])}`,
  };
  byId("state-values").replaceChildren(...Object.entries(values).flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
  if (sample.frames) {
    showFrame(byId("frame"), explorer.number, sample.frames.here[row]);
    showFrame(byId("frame-next"), explorer.number, sample.frames.next[row]);
  }
}

// Clear a canvas and fit it to the screen resolution; its context uses CSS pixels.
function clearedCanvas(name) {
  const canvas = byId(name);
  const box = byId("plane");
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [box.clientWidth, box.clientHeight];
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// The range of the colours, without the extreme values of bonus and error.
function colourRange(values, name) {
  const sorted = Float64Array.from(values).sort();
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const cut = (name === "bonus" || name === "error") && at(0.99) > at(0.01);
  const [low, high] = cut ? [at(0.01), at(0.99)] : [sorted[0], sorted.at(-1)];
  return { low, high, below: sorted[0] < low, above: sorted.at(-1) > high };
}

function drawStates() {
  if (!report.samples.length || !byId("plane").clientWidth) return; // not laid out yet
  const sample = sampleNow();
  const { context, width, height } = clearedCanvas("states");
  const area = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  let [x, y] = [extent([sample.x]), extent([sample.y])];
  [x, y] = [x, y].map(([low, high]) => [low - (high - low) * 0.03, high + (high - low) * 0.03]);
  if (sample.dimensions > 1) {
    // Equal units on both axes.
    const unit = Math.max((x[1] - x[0]) / area.width, (y[1] - y[0]) / area.height);
    [x, y] = [[x, area.width], [y, area.height]].map(([[low, high], pixels]) => {
      const spare = (unit * pixels - (high - low)) / 2;
      return [low - spare, high + spare];
    });
  }
  const middle = explorer.centre ?? [(x[0] + x[1]) / 2, (y[0] + y[1]) / 2];
  [x, y] = [x, y].map(([low, high], axis) => {
    const half = (high - low) / 2 / explorer.zoom;
    return [middle[axis] - half, middle[axis] + half];
  });
  explorer.range = { x, y };
  const toX = (value) => MARGIN.left + ((value - x[0]) / (x[1] - x[0])) * area.width;
  const toY = (value) => MARGIN.top + (1 - (value - y[0]) / (y[1] - y[0])) * area.height;
  explorer.points = { x: Float32Array.from(sample.x, toX), y: Float32Array.from(sample.y, toY) };
  drawPlaneAxes(context, { x, y, toX, toY, width, height }, sample.axes);

  const values = sample[explorer.colour];
  const range = colourRange(values, explorer.colour);
  const dark = isDark();
  // High values are rare, and drawn last so that they stay visible.
  const order = Uint32Array.from(values, (_, row) => row).sort((a, b) => values[a] - values[b]);
  const radius = sample.count > 3000 ? 2.2 : 2.8;
  clipToPlane(context, width, height);
  context.globalAlpha = 0.85;
  for (const row of order) {
    const share = range.high > range.low ? (values[row] - range.low) / (range.high - range.low) : 0;
    context.fillStyle = sequential(Math.max(0, Math.min(1, share)), dark);
    context.beginPath();
    context.arc(explorer.points.x[row], explorer.points.y[row], radius, 0, 2 * Math.PI);
    context.fill();
  }
  context.restore();
  drawColourBar(range, dark);
  drawPath();
}

function drawPlaneAxes(context, { x, y, toX, toY, width, height }, names) {
  context.strokeStyle = ink("grid");
  context.fillStyle = ink("soft");
  context.font = "12px system-ui, sans-serif";
  context.lineWidth = 1;
  context.textAlign = "center";
  const across = ticks(x[0], x[1], Math.max(2, Math.floor(width / 110)));
  tickTexts(across).forEach((text, i) => {
    line(context, toX(across[i]), MARGIN.top, toX(across[i]), height - MARGIN.bottom);
    context.fillText(text, toX(across[i]), height - MARGIN.bottom + 16);
  });
  context.textAlign = "right";
  const up = ticks(y[0], y[1], Math.max(2, Math.floor(height / 80)));
  tickTexts(up).forEach((text, i) => {
    line(context, MARGIN.left, toY(up[i]), width - MARGIN.right, toY(up[i]));
    context.fillText(text, MARGIN.left - 7, toY(up[i]) + 4);
  });
  context.fillStyle = ink("ink");
  context.textAlign = "center";
  context.fillText(names[0], (MARGIN.left + width) / 2, height - 8, width - MARGIN.left);
  context.save();
  context.translate(14, height / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(names[1], 0, 0, height - 20);
  context.restore();
}

function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

// Clip to the axes until context.restore().
function clipToPlane(context, width, height) {
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom);
  context.clip();
}

// Zoom by a factor around the point [x, y] of the plane; without a point, centre the selected
// state.
function zoomBy(factor, place = null) {
  const before = explorer.zoom;
  explorer.zoom = Math.min(200, Math.max(1, before * factor));
  if (explorer.zoom === 1) explorer.centre = null;
  else if (place === null) explorer.centre = [sampleNow().x[selectedRow()], sampleNow().y[selectedRow()]];
  else {
    const { x, y } = explorer.range;
    const middle = [(x[0] + x[1]) / 2, (y[0] + y[1]) / 2];
    explorer.centre = middle.map((value, axis) => place[axis] + (value - place[axis]) * (before / explorer.zoom));
  }
  drawStates();
}

// The point of the plane under the pointer.
function placeAt(event) {
  const box = byId("plane").getBoundingClientRect();
  const { x, y } = explorer.range;
  const across = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
  const up = 1 - (event.clientY - box.top - MARGIN.top) / (box.height - MARGIN.top - MARGIN.bottom);
  return [x[0] + across * (x[1] - x[0]), y[0] + up * (y[1] - y[0])];
}

function startZoom(plane) {
  byId("zoom-in").addEventListener("click", () => zoomBy(2));
  byId("zoom-out").addEventListener("click", () => zoomBy(0.5));
  byId("zoom-fit").addEventListener("click", () => zoomBy(0));
  // Only if focused: otherwise the page could not be scrolled past the plot.
  plane.addEventListener("wheel", (event) => {
    if (document.activeElement !== plane) return;
    event.preventDefault();
    zoomBy(event.deltaY < 0 ? 1.25 : 0.8, placeAt(event));
  }, { passive: false });
  let held = null; // the point that is dragged
  plane.addEventListener("pointerdown", (event) => {
    held = explorer.zoom > 1 ? placeAt(event) : null;
    explorer.dragged = false;
  });
  plane.addEventListener("pointermove", (event) => {
    if (held === null || event.buttons === 0 || Math.hypot(event.movementX, event.movementY) === 0) return;
    const now = placeAt(event);
    const { x, y } = explorer.range;
    explorer.centre = [(x[0] + x[1]) / 2 + held[0] - now[0], (y[0] + y[1]) / 2 + held[1] - now[1]];
    explorer.dragged = true;
    drawStates();
  });
}

function drawColourBar(range, dark) {
  const context = byId("bar").getContext("2d");
  for (let i = 0; i < 256; i++) {
    context.fillStyle = sequential(i / 255, dark);
    context.fillRect(i, 0, 1, 1);
  }
  byId("bar-low").textContent = (range.below ? "≤ " : "") + written(range.low);
  byId("bar-high").textContent = (range.above ? "≥ " : "") + written(range.high);
  byId("bar-name").textContent = COLOUR_NAMES[explorer.colour];
}

function drawPath() {
  if (!explorer.points || !byId("plane").clientWidth) return;
  const { context, width, height } = clearedCanvas("path");
  clipToPlane(context, width, height);
  const { x, y } = explorer.points;
  const { start, size } = episodeNow();
  const [front, back] = [ink("ink"), ink("card")];
  const trace = (from, to) => {
    context.beginPath();
    for (let row = from; row <= to; row++) context.lineTo(x[row], y[row]);
    context.stroke();
  };
  context.lineJoin = "round";
  context.strokeStyle = front;
  context.globalAlpha = 0.28;
  context.lineWidth = 0.8;
  trace(start, start + size - 1);
  context.globalAlpha = 0.9;
  context.lineWidth = 1.4;
  // Only the last steps in bold: the whole path would hide the states.
  trace(Math.max(start, selectedRow() - 60), selectedRow());
  context.globalAlpha = 1;
  const blob = (row, radius, filled, square) => {
    context.beginPath();
    if (square) context.rect(x[row] - radius, y[row] - radius, 2 * radius, 2 * radius);
    else context.arc(x[row], y[row], radius, 0, 2 * Math.PI);
    context.fillStyle = filled;
    context.strokeStyle = front;
    context.lineWidth = 1.5;
    context.fill();
    context.stroke();
  };
  blob(start, 3.5, back);
  blob(start + size - 1, 3.2, back, true);
  blob(selectedRow(), 6, ink("accent"));
  if (explorer.hover !== null) {
    context.beginPath();
    context.arc(x[explorer.hover], y[explorer.hover], 8, 0, 2 * Math.PI);
    context.lineWidth = 4;
    context.strokeStyle = back;
    context.stroke();
    context.lineWidth = 2;
    context.strokeStyle = front;
    context.stroke();
  }
  context.restore();
}

function rowAt(event) {
  const box = byId("plane").getBoundingClientRect();
  const [px, py] = [event.clientX - box.left - 1, event.clientY - box.top - 1];
  const { x, y } = explorer.points;
  let best = null;
  let distance = REACH * REACH;
  for (let row = 0; row < x.length; row++) {
    const d = (x[row] - px) ** 2 + (y[row] - py) ** 2;
    if (d < distance) [best, distance] = [row, d];
  }
  return best;
}

function play(on) {
  explorer.playing = on;
  byId("play").textContent = on ? "Pause" : "Play";
  byId("play").setAttribute("aria-pressed", String(on));
  if (!on) return;
  if (explorer.place >= episodeNow().size - 1) goTo(0);
  let before = performance.now();
  let owed = 0; // steps to take, with a fraction: frame rate and speed differ
  const tick = (now) => {
    if (!explorer.playing) return;
    owed += ((now - before) / 1000) * Number(byId("speed").value);
    before = now;
    const steps = Math.floor(owed);
    if (steps) {
      owed -= steps;
      goTo(explorer.place + steps);
    }
    if (explorer.place >= episodeNow().size - 1) play(false);
    else requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

function startExplorer() {
  if (!report.samples.length) {
    byId("no-sample").hidden = false;
    byId("explorer-body").hidden = true;
    byId("errors").hidden = true;
    document.querySelector('nav a[href="#errors"]').hidden = true;
    return;
  }
  options(byId("sample"), report.samples.map((sample, k) => {
    const run = report.runs[sample.run];
    return [k, `${run.env}, ${run.label}, seed ${run.seed}`];
  }));
  byId("sample").addEventListener("change", (event) => { play(false); chooseSample(Number(event.target.value)); });
  byId("episode").addEventListener("change", (event) => { play(false); chooseEpisode(Number(event.target.value)); });
  byId("colour").addEventListener("change", (event) => { explorer.colour = event.target.value; drawStates(); });
  byId("position").addEventListener("input", (event) => { play(false); goTo(Number(event.target.value)); });
  byId("play").addEventListener("click", () => play(!explorer.playing));
  byId("back").addEventListener("click", () => { play(false); goTo(explorer.place - 1, true); });
  byId("forward").addEventListener("click", () => { play(false); goTo(explorer.place + 1, true); });
  const plane = byId("plane");
  plane.addEventListener("pointermove", (event) => {
    const row = rowAt(event);
    if (row === explorer.hover) return;
    explorer.hover = row;
    drawPath();
    showState();
  });
  plane.addEventListener("pointerleave", () => { explorer.hover = null; drawPath(); showState(); });
  plane.addEventListener("click", (event) => {
    const row = rowAt(event);
    if (row === null || explorer.dragged) return;
    play(false);
    goToRow(row);
  });
  plane.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 10 : 1;
    const to = {
      ArrowLeft: explorer.place - far, ArrowUp: explorer.place + far,
      ArrowRight: explorer.place + far, ArrowDown: explorer.place - far,
      Home: 0, End: episodeNow().size - 1,
      PageUp: explorer.place + 50, PageDown: explorer.place - 50,
    }[event.key];
    const factor = { "+": 2, "=": 2, "-": 0.5, 0: 0 }[event.key];
    if (event.key === " ") play(!explorer.playing);
    else if (factor !== undefined && !event.ctrlKey && !event.metaKey) zoomBy(factor);
    else if (to !== undefined) { play(false); explorer.hover = null; goTo(to, true); }
    else return;
    event.preventDefault();
  });
  startZoom(plane);
  onResize(plane, drawStates);
}
