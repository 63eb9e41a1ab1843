// Zoom, pan and cursor of the learning curves, by pointer, wheel, keys and buttons.

const NARROWEST = 1 / 2000; // of the whole x axis

// Show the range [low, high] of the x axis, moved into the axis; all of it shows everything.
function zoomCurves([low, high], name, zoomY = view.zoomY) {
  const end = curves.full[1];
  const width = Math.min(end, Math.max(high - low, end * NARROWEST));
  const from = Math.max(0, Math.min(low, end - width));
  change({ zoomX: width >= end * 0.9999 ? null : [from, from + width], zoomY }, name);
}

// Make the range narrower or wider by a factor; the value `around` keeps its place.
function scaleCurves([low, high], factor, around) {
  zoomCurves([around + (low - around) * factor, around + (high - around) * factor], "zoom");
}

function panCurves([low, high], share) {
  zoomCurves([low + (high - low) * share, high + (high - low) * share], "pan");
}

const showAllCurves = () => change({ zoomX: null, zoomY: null });

function moveCursor(one, index) {
  curves.cursor = Math.max(0, Math.min(one.grid.length - 1, index));
  for (const { hide } of curves.charts) hide();
  if (one.grid.length) one.show(one.list, one.grid[curves.cursor]);
}

// The pointer draws a box to zoom to, or moves the view with Shift. A flat box selects a range of x
// only.
function startDragging(area) {
  const FLAT = 24; // pixels
  let drag = null;
  const stop = () => { drag?.box.remove(); drag = null; };
  area.addEventListener("pointerdown", (event) => {
    const one = curves.charts.find(({ root }) => root.contains(event.target));
    if (!one || event.button !== 0) return;
    const box = one.plot.appendChild(svg("rect", { class: "brush" }));
    drag = { one, box, start: one.place(event), frame: one.root.getBoundingClientRect(), pan: event.shiftKey, moved: false };
  });
  area.addEventListener("pointermove", (event) => {
    const one = drag?.one ?? curves.charts.find(({ root }) => root.contains(event.target));
    if (!one) return;
    if (!drag) {
      moveCursor(one, nearest(one.grid, one.scale.toX(one.place(event)[0])));
      return;
    }
    const { start, frame } = drag;
    const { margin, inner } = one;
    // The chart is drawn anew while it is panned, so its place on the screen is the one at the start.
    const now = [((event.clientX - frame.left) / frame.width) * one.width, ((event.clientY - frame.top) / frame.height) * one.height];
    if (!drag.moved && Math.hypot(now[0] - start[0], now[1] - start[1]) < 5) return;
    if (!drag.moved) area.setPointerCapture(event.pointerId);
    drag.moved = true;
    one.hide();
    if (drag.pan) {
      const by = ((start[0] - now[0]) / inner.width) * (one.x[1] - one.x[0]);
      zoomCurves([one.x[0] + by, one.x[1] + by], "pan");
      return;
    }
    const flat = Math.abs(now[1] - start[1]) < FLAT;
    const clamp = (value, from, size) => Math.max(from, Math.min(from + size, value));
    const [x0, x1] = [start[0], now[0]].map((value) => clamp(value, margin.left, inner.width)).sort((a, b) => a - b);
    const [y0, y1] = flat ? [margin.top, margin.top + inner.height] : [start[1], now[1]].map((value) => clamp(value, margin.top, inner.height)).sort((a, b) => a - b);
    for (const [name, value] of Object.entries({ x: x0, y: y0, width: x1 - x0, height: y1 - y0 })) drag.box.setAttribute(name, value);
    drag.to = { x: [one.scale.toX(x0), one.scale.toX(x1)], y: flat ? view.zoomY : [one.scale.toY(y1), one.scale.toY(y0)] };
  });
  area.addEventListener("pointerup", () => {
    const to = drag?.to;
    stop();
    if (to && to.x[1] > to.x[0]) zoomCurves(to.x, null, to.y);
  });
  area.addEventListener("pointercancel", stop);
  area.addEventListener("pointerleave", () => curves.charts.forEach(({ root, hide }) => root === document.activeElement || hide()));
  area.addEventListener("dblclick", showAllCurves);
}

function startCurveZoom() {
  const area = byId("curve-area");
  startDragging(area);
  const focused = () => curves.charts.find(({ root }) => root === document.activeElement);
  // Only if focused: otherwise the page could not be scrolled past the chart.
  area.addEventListener("wheel", (event) => {
    const one = curves.charts.find(({ root }) => root.contains(event.target));
    if (!one || !(one === focused() || event.ctrlKey)) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) panCurves(one.x, event.deltaX / 1000);
    else scaleCurves(one.x, event.deltaY < 0 ? 0.8 : 1.25, one.scale.toX(one.place(event)[0]));
  }, { passive: false });
  area.addEventListener("focusin", () => { const one = focused(); if (one?.root.matches(":focus-visible")) moveCursor(one, curves.cursor ?? one.grid.length - 1); });
  area.addEventListener("focusout", () => curves.charts.forEach(({ hide }) => hide()));
  area.addEventListener("keydown", (event) => {
    const one = focused();
    if (!one || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = Math.min(curves.cursor ?? one.grid.length - 1, one.grid.length - 1);
    const middle = one.grid[at] ?? (one.x[0] + one.x[1]) / 2;
    const actions = {
      ArrowLeft: () => moveCursor(one, at - 1), ArrowRight: () => moveCursor(one, at + 1),
      Home: () => moveCursor(one, 0), End: () => moveCursor(one, one.grid.length - 1),
      "+": () => scaleCurves(one.x, 0.5, middle), "=": () => scaleCurves(one.x, 0.5, middle),
      "-": () => scaleCurves(one.x, 2, middle), 0: showAllCurves,
    };
    const pans = { ArrowLeft: () => panCurves(one.x, -0.2), ArrowRight: () => panCurves(one.x, 0.2) };
    const action = (event.shiftKey && pans[event.key]) || (Object.hasOwn(actions, event.key) && actions[event.key]);
    if (!action) return;
    event.preventDefault();
    action();
  });
  const range = () => curves.charts[0].x;
  const middle = () => (range()[0] + range()[1]) / 2;
  byId("curve-zoom-in").addEventListener("click", () => scaleCurves(range(), 0.5, middle()));
  byId("curve-zoom-out").addEventListener("click", () => scaleCurves(range(), 2, middle()));
  byId("pan-left").addEventListener("click", () => panCurves(range(), -0.2));
  byId("pan-right").addEventListener("click", () => panCurves(range(), 0.2));
  byId("zoom-reset").addEventListener("click", showAllCurves);
}
