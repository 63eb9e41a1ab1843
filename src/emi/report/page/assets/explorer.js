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
  middle: null, // centre of the view as it is drawn
  scale: null, // between the plane and pixels
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
const episodeOf = (row) => sampleNow().episodes.findIndex(({ start, size }) => row >= start && row < start + size);

function chooseSample(number) {
  explorer.number = number;
  explorer.hover = null;
  [explorer.zoom, explorer.centre] = [1, null];
  byId("sample").value = String(number);
  const sample = sampleNow();
  options(byId("episode"), sample.episodes.map((episode, k) => [k,
    `${k + 1}: ${plural(episode.size, "step")}${episode.whole ? "" : ", cut"}, return ${written(episode.return)}`]));
  byId("frames").hidden = !sample.frames;
  const run = runName(report.runs[sample.run]);
  const axes = sample.dimensions === 2 ? "the two dimensions of φ" : sample.dimensions === 1
    ? "φ over time" : `the first two principal components of the ${sample.dimensions} dimensions of φ`;
  byId("errors-run").textContent = `${run}, the episode chosen above.`;
  byId("plane-text").textContent = `${whole(sample.count)} states in ${plural(sample.episodes.length, "episode")} of the last batch of ${run}; ${axes}. A cut episode continues after the sample; its return is counted up to the cut.`;
  chooseEpisode(sample.first);
  drawStates();
}

function chooseEpisode(number) {
  [explorer.episode, explorer.place] = [number, 0];
  byId("episode").value = String(number);
  byId("position").max = String(episodeNow().size - 1);
  drawTimeline();
  goTo(0);
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
  if (!speak) return;
  const [sample, row] = [sampleNow(), selectedRow()];
  byId("spoken").textContent = `Step ${sample.step[row]}, bonus ${written(sample.bonus[row])}, return from here ${written(sample.return[row])}, error norm ${written(sample.error[row])}.`;
}

// Select a state of the episode.
function select(place) {
  play(false);
  goTo(place, true);
}

const short = (value) => minus(value.toPrecision(3));

function showState() {
  const sample = sampleNow();
  const row = explorer.hover ?? selectedRow();
  byId("state-title").textContent = explorer.hover === null ? "Selected state" : "State under the pointer";
  const values = {
    episode: `${episodeOf(row) + 1} of ${sample.episodes.length}`,
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
  const pixels = [width, height].map((length) => Math.round(length * ratio));
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) [canvas.width, canvas.height] = pixels;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height, inner: innerSize(width, height, MARGIN) };
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
  const { context, width, height, inner } = clearedCanvas("states");
  const ends = [sample.x, sample.y].map((values) => extent([values]));
  let half = ends.map(([low, high]) => ((high - low) / 2) * 1.06); // of the axes without zoom
  if (sample.dimensions > 1) {
    // Equal units on both axes.
    const unit = Math.max(half[0] / inner.width, half[1] / inner.height);
    half = [unit * inner.width, unit * inner.height];
  }
  explorer.middle = explorer.centre ?? ends.map(([low, high]) => (low + high) / 2);
  const [x, y] = explorer.middle.map((at, axis) => [at - half[axis] / explorer.zoom, at + half[axis] / explorer.zoom]);
  const scale = scaleOf(x, y, MARGIN, inner);
  explorer.scale = scale;
  explorer.points = { x: Float32Array.from(sample.x, scale.x), y: Float32Array.from(sample.y, scale.y) };
  drawPlaneAxes({ context, width, height, x, y, scale }, sample.axes);

  const values = sample[explorer.colour];
  const range = colourRange(values, explorer.colour);
  const dark = isDark();
  // High values are rare, and drawn last so that they stay visible.
  const order = Uint32Array.from(values, (_, row) => row).sort((a, b) => values[a] - values[b]);
  const radius = sample.count > 3000 ? 2.2 : 2.8;
  clipToPlane(context, inner);
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

function drawPlaneAxes({ context, width, height, x, y, scale }, names) {
  const [right, bottom] = [width - MARGIN.right, height - MARGIN.bottom];
  Object.assign(context, { strokeStyle: ink("grid"), fillStyle: ink("soft"), font: "12px system-ui, sans-serif", lineWidth: 1, textAlign: "center" });
  context.beginPath();
  for (const [value, text] of labelledTicks(x[0], x[1], Math.max(2, Math.floor(width / 110)))) {
    context.moveTo(scale.x(value), MARGIN.top);
    context.lineTo(scale.x(value), bottom);
    context.fillText(text, scale.x(value), bottom + 16);
  }
  context.textAlign = "right";
  for (const [value, text] of labelledTicks(y[0], y[1], Math.max(2, Math.floor(height / 80)))) {
    context.moveTo(MARGIN.left, scale.y(value));
    context.lineTo(right, scale.y(value));
    context.fillText(text, MARGIN.left - 7, scale.y(value) + 4);
  }
  context.stroke();
  Object.assign(context, { fillStyle: ink("ink"), textAlign: "center" });
  context.fillText(names[0], (MARGIN.left + width) / 2, height - 8, width - MARGIN.left);
  context.save();
  context.translate(14, height / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(names[1], 0, 0, height - 20);
  context.restore();
}

// Clip to the axes until context.restore().
function clipToPlane(context, inner) {
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, inner.width, inner.height);
  context.clip();
}

// Zoom by a factor around the point [x, y] of the plane; without a point, centre the selected
// state.
function zoomBy(factor, place = null) {
  const before = explorer.zoom;
  explorer.zoom = Math.min(200, Math.max(1, before * factor));
  if (explorer.zoom === 1) explorer.centre = null;
  else if (place === null) explorer.centre = [sampleNow().x[selectedRow()], sampleNow().y[selectedRow()]];
  else explorer.centre = explorer.middle.map((value, axis) => place[axis] + (value - place[axis]) * (before / explorer.zoom));
  drawStates();
}

// The point of the plane under the pointer.
const placeAt = (event) => [explorer.scale.toX(event.offsetX), explorer.scale.toY(event.offsetY)];

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
    explorer.centre = explorer.middle.map((value, axis) => value + held[axis] - now[axis]);
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
  const { context, inner } = clearedCanvas("path");
  clipToPlane(context, inner);
  const { x, y } = explorer.points;
  const { start, size } = episodeNow();
  const [front, back] = [ink("ink"), ink("card")];
  const stroke = (style) => {
    Object.assign(context, style);
    context.stroke();
  };
  const trace = (from, to) => {
    context.beginPath();
    for (let row = from; row <= to; row++) context.lineTo(x[row], y[row]);
  };
  const circle = (row, radius) => {
    context.beginPath();
    context.arc(x[row], y[row], radius, 0, 2 * Math.PI);
  };
  trace(start, start + size - 1);
  stroke({ lineJoin: "round", strokeStyle: front, globalAlpha: 0.28, lineWidth: 0.8 });
  // Only the last steps in bold: the whole path would hide the states.
  trace(Math.max(start, selectedRow() - 60), selectedRow());
  stroke({ globalAlpha: 0.9, lineWidth: 1.4 });
  const paint = (fillStyle) => {
    Object.assign(context, { fillStyle, globalAlpha: 1 });
    context.fill();
    stroke({ lineWidth: 1.5 });
  };
  const end = start + size - 1;
  circle(start, 3.5);
  paint(back);
  context.beginPath();
  context.rect(x[end] - 3.2, y[end] - 3.2, 6.4, 6.4);
  paint(back);
  circle(selectedRow(), 6);
  paint(ink("accent"));
  if (explorer.hover !== null) {
    circle(explorer.hover, 8);
    stroke({ lineWidth: 4, strokeStyle: back });
    stroke({ lineWidth: 2, strokeStyle: front });
  }
  context.restore();
}

function rowAt(event) {
  const { x, y } = explorer.points;
  let best = null;
  let distance = REACH * REACH;
  for (let row = 0; row < x.length; row++) {
    const d = (x[row] - event.offsetX) ** 2 + (y[row] - event.offsetY) ** 2;
    if (d < distance) [best, distance] = [row, d];
  }
  return best;
}

function hoverOver(row) {
  if (row === explorer.hover) return;
  explorer.hover = row;
  drawPath();
  showState();
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
    owed -= steps;
    if (steps) goTo(explorer.place + steps);
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
  options(byId("sample"), report.samples.map((sample, k) => [k, runName(report.runs[sample.run])]));
  byId("sample").addEventListener("change", (event) => { play(false); chooseSample(Number(event.target.value)); });
  byId("episode").addEventListener("change", (event) => { play(false); chooseEpisode(Number(event.target.value)); });
  byId("colour").addEventListener("change", (event) => { explorer.colour = event.target.value; drawStates(); });
  byId("position").addEventListener("input", (event) => { play(false); goTo(Number(event.target.value)); });
  byId("play").addEventListener("click", () => play(!explorer.playing));
  byId("back").addEventListener("click", () => select(explorer.place - 1));
  byId("forward").addEventListener("click", () => select(explorer.place + 1));
  const plane = byId("plane");
  plane.addEventListener("pointermove", (event) => hoverOver(rowAt(event)));
  plane.addEventListener("pointerleave", () => hoverOver(null));
  plane.addEventListener("click", (event) => {
    const row = rowAt(event);
    if (row === null || explorer.dragged) return;
    if (episodeOf(row) !== explorer.episode) chooseEpisode(episodeOf(row));
    select(row - episodeNow().start);
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
    else if (to !== undefined) { explorer.hover = null; select(to); }
    else return;
    event.preventDefault();
  });
  startZoom(plane);
  onResize(plane, drawStates);
  onResize(byId("timeline"), drawTimeline);
}
