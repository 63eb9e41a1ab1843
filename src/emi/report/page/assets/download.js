// Downloads of the learning curves as they are shown: PNG, SVG and CSV.

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "paint-order", "text-anchor", "font-size", "font-family", "font-weight"];

// A copy of an SVG element that needs no style sheet.
function styledCopy(element) {
  if (element.nodeType !== Node.ELEMENT_NODE) return element.cloneNode();
  const copy = svg(element.localName);
  for (const { name, value } of element.attributes) if (!/^(class|style|tabindex|role|aria-.*)$/.test(name)) copy.setAttribute(name, value);
  const style = getComputedStyle(element);
  for (const name of STYLES) copy.setAttribute(name, style.getPropertyValue(name));
  copy.append(...[...element.childNodes].map(styledCopy));
  return copy;
}

// All charts with a title and the names of their lines, as one SVG element.
function curvePicture() {
  curves.charts.forEach(({ hide }) => hide());
  const [{ width, height, root }] = curves.charts;
  const panels = view.layout === "panels";
  const columns = panels ? Math.min(3, curves.charts.length) : 1;
  const font = getComputedStyle(root).fontFamily;
  const text = (content, x, y, attributes = {}) => svg("text", { x, y, fill: ink("ink"), "font-family": font, "font-size": 13, ...attributes }, content);
  const parts = [text(`${envNow().name}: ${titleOf(view.measure)}`, 16, 26, { "font-size": 17, "font-weight": 600 })];
  const size = { width: columns * width + 16, height: 40 };
  curves.charts.forEach(({ root: one, list }, k) => {
    const [x, y] = [(k % columns) * width, 40 + Math.floor(k / columns) * (height + 28)];
    const copy = styledCopy(one);
    fill(copy, { x, y: panels ? y + 22 : y, width, height }, []);
    if (panels) parts.push(text(list[0].group.label, x + 16, y + 14, { "font-weight": 600 }));
    parts.push(copy);
    size.height = y + height + 28;
  });
  if (panels) parts.push(text(X_NAMES[view.x], size.width / 2, size.height + 8, { "text-anchor": "middle" }));
  let [x, y] = [16, size.height + 4];
  for (const { group: { label } } of panels ? [] : curves.charts[0].list) {
    const wide = label.length * LETTER + 60;
    if (x > 16 && x + wide > size.width) [x, y] = [16, y + 22];
    const colour = ink(colourName(label));
    parts.push(svg("line", { x1: x, x2: x + 24, y1: y - 4, y2: y - 4, stroke: colour, "stroke-width": 3, "stroke-dasharray": dashOf(label) }), text(label, x + 32, y));
    x += wide;
  }
  size.height = y + 20;
  return svg("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}` }, svg("rect", { ...size, fill: ink("card") }), ...parts);
}

const svgText = (picture) => new XMLSerializer().serializeToString(picture);

async function pngOf(picture) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(svgText(picture))}`;
  await image.decode();
  const canvas = html("canvas", { width: 2 * picture.getAttribute("width"), height: 2 * picture.getAttribute("height") });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => { canvas.toBlob(done, "image/png"); });
}

// One row per point that is shown; a row without a seed is the mean over seeds.
function csvText() {
  // A spreadsheet must not take a name for a formula.
  const name = (content) => `"${String(content).replace(/^[=+@-]/, "'$&").replaceAll('"', '""')}"`;
  // Values of the page are exact to about five digits.
  const number = (value, digits = 5) => (value === undefined || Number.isNaN(value) ? "" : String(Number(value.toPrecision(digits))));
  const rows = [["environment", "metric", "method", "seed", view.x, "value", "low", "high"]];
  for (const { group, runs, curve } of curves.charts.flatMap(({ list }) => list)) {
    const add = (seed, x, values, from, to) => x.forEach((place, i) => {
      if (!within(place, curves.charts[0].x) || Number.isNaN(values[i])) return;
      rows.push([name(envNow().name), name(view.measure), name(group.label), seed, number(place, 9), number(values[i]), number(from?.[i]), number(to?.[i])]);
    });
    const banded = view.interval === "on" ? curve : null;
    if (curve) add("", curve.x, curve.mean, banded?.low, banded?.high);
    if (view.seeds === "on") for (const { run, x, values } of runs) add(run.seed, x, values);
  }
  return rows.map((row) => `${row.join(",")}\n`).join("");
}

function save(content, type, ending) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const name = `${envNow().name}-${view.measure}`.replace(/[^\w.-]+/g, "_");
  html("a", { href: address, download: `${name}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

function startDownloads() {
  byId("save-png").addEventListener("click", async () => save(await pngOf(curvePicture()), "image/png", "png"));
  byId("save-svg").addEventListener("click", () => save(svgText(curvePicture()), "image/svg+xml", "svg"));
  byId("save-csv").addEventListener("click", () => save(csvText(), "text/csv", "csv"));
}
