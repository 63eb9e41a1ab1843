// The error model along the chosen episode, with buttons for its highest peaks.

const PEAK_COLOURS = ["c0", "c2", "c3", "c4", "c6"];
const timeline = { scale: null, cursor: null };

function drawTimeline() {
  const area = byId("timeline");
  const sample = sampleNow();
  const { start, size, peaks } = episodeNow();
  const steps = sample.step.subarray(start, start + size);
  const norm = sample.error.subarray(start, start + size);
  const [low, high] = [steps[0], steps[size - 1]];
  const best = peaks.map((peak, k) => `${"abcde"[k]} at step ${steps[peak]}, ${written(norm[peak])}`).join("; ");
  const { root, plot, scale, upright, place } = chart({
    width: Math.max(300, area.clientWidth),
    height: 230,
    x: high > low ? [low, high] : [low - 1, low + 1],
    y: [0, (norm.reduce((a, b) => Math.max(a, b), 0) || 1) * 1.18],
    xName: "step of the episode",
    yName: "‖S(s, a)‖",
    label: `Error norm over ${size} steps of the episode. ${peaks.length ? `Highest peaks: ${best}.` : "It is constant."}`,
  });
  plot.append(svg("path", { d: linePath(steps, norm, scale), fill: "none", style: { stroke: "var(--soft)", strokeWidth: "1.1" } }));
  timeline.scale = scale;
  timeline.cursor = upright(0, { style: { stroke: "var(--accent)", strokeWidth: "2" } });
  root.append(timeline.cursor);
  peaks.forEach((peak, k) => {
    const [x, y] = [scale.x(steps[peak]), scale.y(norm[peak])];
    root.append(
      svg("circle", { cx: x, cy: y, r: 4.5, style: { fill: `var(--${PEAK_COLOURS[k]})` } }),
      svg("text", { class: "halo", x, y: y - 9, "text-anchor": "middle", style: { fontWeight: "700", fill: `var(--${PEAK_COLOURS[k]})` } }, "abcde"[k]),
    );
  });
  root.style.cursor = "pointer";
  root.addEventListener("click", (event) => select(nearest(steps, scale.toX(place(event)[0]))));
  area.replaceChildren(root);
  drawPeaks();
  moveTimelineCursor();
}

function drawPeaks() {
  const sample = sampleNow();
  const { start, peaks } = episodeNow();
  byId("peaks").replaceChildren(...peaks.map((place, k) => {
    const row = start + place;
    const pictures = sample.frames ? [sample.frames.here[row], sample.frames.next[row]].map((index) => {
      const canvas = html("canvas", { "aria-hidden": "true" });
      showFrame(canvas, explorer.number, index);
      return canvas;
    }) : [];
    const button = html("button", { type: "button", "data-place": place },
      html("b", { style: { color: `var(--${PEAK_COLOURS[k]})` } }, "abcde"[k]),
      html("span", {}, `step ${whole(sample.step[row])}`, html("small", {}, `‖S‖ ${written(sample.error[row])}, bonus ${written(sample.bonus[row])}`)),
      ...pictures);
    button.addEventListener("click", () => {
      select(place);
      byId("plane").scrollIntoView({ block: "nearest" });
    });
    return html("li", {}, button);
  }));
  if (!peaks.length) byId("peaks").replaceChildren(html("li", { class: "note" }, "The error norm is constant in this episode."));
}

function moveTimelineCursor() {
  const at = timeline.scale.x(sampleNow().step[selectedRow()]);
  timeline.cursor.setAttribute("x1", at);
  timeline.cursor.setAttribute("x2", at);
  for (const button of byId("peaks").querySelectorAll("button")) {
    button.setAttribute("aria-current", String(Number(button.dataset.place) === explorer.place));
  }
}
