// The view: what is chosen on the page. It is also written into the address after "#", so that a
// link shows the same view, and the back button returns to the previous one.

const SMOOTHING = [0, 1, 2, 3, 5, 8, 12, 20, 30, 50]; // points on either side
// Choices of one word each; the first is the default.
const CHOICES = {
  x: ["steps", "hours", "iterations"],
  y: ["linear", "log"],
  layout: ["together", "panels"],
  seeds: ["off", "on"],
  interval: ["on", "off"],
};
// A range that was zoomed to has no meaning for another quantity.
const RESETS = { env: ["zoomX", "zoomY"], x: ["zoomX"], measure: ["zoomY"], y: ["zoomY"] };

const view = {
  env: null, // number of the environment
  measure: null, // a column of metrics.csv
  smooth: 0, // one of SMOOTHING
  off: new Set(), // labels of groups that are not drawn
  base: null, // number of the group that others are compared with
  zoomX: null, // [low, high], or null for everything
  zoomY: null,
};

const envNow = () => report.envs[view.env];
// At first, the environment with the most groups.
const richest = report.envs.reduce((best, env, k) => (env.groups.length > report.envs[best].groups.length ? k : best), 0);

// Addresses can be edited, so whatever is unknown or malformed in it counts as not given.
function readView(text) {
  const given = new URLSearchParams(text);
  const number = (names, name, otherwise) => (names.includes(given.get(name)) ? names.indexOf(given.get(name)) : otherwise);
  const range = (name) => {
    const ends = (given.get(name) ?? "").split(",").map(Number);
    return ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1] ? ends : null;
  };
  view.env = number(report.envs.map((env) => env.name), "env", richest);
  const { measures, groups, baseline } = envNow();
  const labels = groups.map((group) => group.label);
  view.measure = measures[number(measures, "metric", 0)];
  view.base = number(labels, "base", baseline);
  for (const [name, words] of Object.entries(CHOICES)) view[name] = words[number(words, name, 0)];
  view.smooth = SMOOTHING[number(SMOOTHING.map(String), "smooth", 0)];
  view.off = new Set(given.getAll("off").filter((label) => labels.includes(label)));
  [view.zoomX, view.zoomY] = [range("zoomx"), range("zoomy")];
}

// What differs from the default view.
function viewText() {
  const { name, measures, groups, baseline } = envNow();
  const parts = new URLSearchParams();
  const write = (key, value, usual) => value !== usual && parts.append(key, value);
  const range = (ends) => ends && ends.map((end) => Number(end.toPrecision(6))).join(",");
  write("env", name, report.envs[richest].name);
  write("metric", view.measure, measures[0]);
  write("base", groups[view.base].label, groups[baseline].label);
  for (const [key, [usual]] of Object.entries(CHOICES)) write(key, view[key], usual);
  write("smooth", view.smooth, 0);
  for (const group of groups) if (view.off.has(group.label)) write("off", group.label);
  write("zoomx", range(view.zoomX), null);
  write("zoomy", range(view.zoomY), null);
  return parts.toString();
}

// Change parts of the view. Changes of the same `gesture` in quick succession, such as turns of the
// wheel, are one step of the back button. Browsers limit how often an address may change, so that of
// a gesture is written when it pauses.
const gesture = { name: null, time: 0, timer: null, write: null };

function change(parts, name = null) {
  const now = performance.now();
  const same = name !== null && name === gesture.name && now - gesture.time < 1000;
  if (!same) endGesture();
  for (const part of Object.keys(parts)) for (const other of RESETS[part] ?? []) view[other] = null;
  Object.assign(view, parts);
  if ("env" in parts) {
    const { measures, baseline } = envNow();
    view.base = baseline;
    if (!measures.includes(view.measure)) view.measure = measures[0];
  }
  showView();
  clearTimeout(gesture.timer);
  const write = gesture.write ?? (() => writeAddress(same ? "replaceState" : "pushState"));
  Object.assign(gesture, { name, time: now, write, timer: setTimeout(endGesture, 150) });
  if (name === null) endGesture();
}

// Write the address that is still to be written.
function endGesture() {
  const { write } = gesture;
  forgetGesture();
  write?.();
}

function forgetGesture() {
  clearTimeout(gesture.timer);
  gesture.write = null;
}

function writeAddress(how) {
  if (viewText() !== location.hash.slice(1)) history[how](null, "", `#${viewText()}`);
}
