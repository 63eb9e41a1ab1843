// Plans of runs of the chosen environment, recorded by `emi plan`: the path in φ and the distance.

const decodedPlan = once((number) => {
  const points = ({ x, y }) => ({ x: quantised(x), y: quantised(y) });
  const { run, title, visited, plan, path, distance } = report.plans[number];
  return {
    run, title, visited: points(visited), plan: points(plan), path: points(path),
    distance: new Float32Array(bytes(distance).buffer),
  };
});

function drawPlans() {
  const env = envNow().name;
  const own = report.plans.map((plan, number) => ({ run: plan.run, number })).filter(({ run }) => report.runs[run].env === env);
  byId("plans").hidden = own.length === 0;
  document.querySelector('nav a[href="#plans"]').hidden = own.length === 0;
  // Both charts of a plan are next to each other if there is room.
  const room = Math.max(300, byId("plan-list").clientWidth);
  const width = room >= 700 ? (room - 20) / 2 : room;
  byId("plan-list").replaceChildren(...own.map(({ number }) => {
    const found = decodedPlan(number);
    const { label } = report.runs[found.run];
    return html("figure", {},
      html("figcaption", {}, swatch(label), runName(report.runs[found.run]), small(found.title)),
      html("div", { class: "plan-charts" }, planPlane(found, width), planDistance(found, width)));
  }));
}

// Ranges that show all points with the same unit on both axes.
function equalRanges(parts, ratio) {
  const [x, y] = ["x", "y"].map((axis) => extent(parts.map((part) => part[axis])));
  const unit = 1.08 * Math.max((x[1] - x[0]) / ratio, y[1] - y[0]);
  const around = ([low, high], size) => [(low + high - size) / 2, (low + high + size) / 2];
  return { x: around(x, unit * ratio), y: around(y, unit) };
}

function planPlane({ title, visited, plan, path }, width) {
  const height = Math.min(width, 360);
  const { root, plot, scale } = chart({
    width,
    height,
    ...equalRanges([visited, plan, path], (width - 90) / (height - 52)),
    xName: "φ(s), the plane of the visited states",
    label: `Path in φ-space: ${title}. Grey: visited states; dashed: the plan; line: the path; ring: the start; cross: the goal.`,
  });
  const dots = Array.from(visited.x, (x, i) => `M${scale.x(x).toFixed(1)} ${scale.y(visited.y[i]).toFixed(1)}h0`).join("");
  const line = (part, style) => svg("path", { d: linePath(part.x, part.y, scale), fill: "none", style });
  const [startX, startY] = [scale.x(path.x[0]), scale.y(path.y[0])];
  const [goalX, goalY] = [scale.x(plan.x.at(-1)), scale.y(plan.y.at(-1))];
  plot.append(
    svg("path", { class: "visited", d: dots, fill: "none", style: { stroke: "var(--line)", strokeWidth: "3", strokeLinecap: "round" } }),
    line(plan, { stroke: "var(--c2)", strokeWidth: "1.6", strokeDasharray: "5 4" }),
    line(path, { stroke: "var(--accent)", strokeWidth: "1.8" }),
    svg("circle", { cx: startX, cy: startY, r: 5, fill: "none", style: { stroke: "var(--ink)", strokeWidth: "2" } }),
    svg("path", { d: `M${goalX - 5} ${goalY - 5}l10 10m0 -10l-10 10`, style: { stroke: "var(--c2)", strokeWidth: "2.4" } }),
  );
  return root;
}

function planDistance({ title, distance }, width) {
  const steps = Array.from(distance.keys());
  const { root, plot, scale } = chart({
    width,
    height: Math.min(width, 360),
    x: [0, Math.max(1, steps.length - 1)],
    y: [0, extent([distance])[1] * 1.06],
    xName: "step",
    yName: "steps from the goal",
    label: `Distance from the goal: ${title}. ${written(distance[0])} steps of the linear model at first, ${written(distance.at(-1))} after ${plural(steps.length - 1, "step")}.`,
  });
  plot.append(svg("path", { d: linePath(steps, distance, scale), fill: "none", style: { stroke: "var(--accent)", strokeWidth: "1.8" } }));
  return root;
}

function startPlans() {
  onResize(byId("plan-list"), drawPlans);
}
