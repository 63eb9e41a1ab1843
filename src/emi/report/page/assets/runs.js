// Configuration and provenance: settings of the groups, and every run with its starts.

const inspection = { terms: [], depth: "differs" };

const valueText = (value) => (value === undefined || value === null ? "–" : Array.isArray(value) ? value.join(", ") : String(value));

// The index at which a search term starts a word of the text, or -1: "eta" is not in "Cheetah". A
// term with "=" must also end there: "seed=1" does not match "seed=10".
function placeOf(term, text) {
  const escaped = term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const found = new RegExp(`(^|[^a-z0-9])(?=${escaped}${term.includes("=") ? "(?![\\w.])" : ""})`, "i").exec(text);
  return found ? found.index + found[1].length : -1;
}
const matches = (text) => inspection.terms.every((term) => placeOf(term, text) >= 0);

// The text with the search term marked.
function marked(text) {
  const term = inspection.terms.find((one) => placeOf(one, text) >= 0);
  if (!term) return [text];
  const at = placeOf(term, text);
  return [text.slice(0, at), html("mark", {}, text.slice(at, at + term.length)), text.slice(at + term.length)];
}

// Settings in the chosen environment: one row per key, one column per group.
function drawSettings() {
  const env = envNow();
  byId("settings-title").textContent = `Settings in ${env.name}`;
  const configs = env.groups.map((group) => report.runs[group.runs[0]].config);
  const keys = [...new Set(configs.flatMap((config) => Object.keys(config)))].filter((key) => !["env", "method", "seed"].includes(key));
  const rows = keys
    .map((key) => ({ key, values: configs.map((config) => valueText(config[key])) }))
    .map((row) => ({ ...row, differs: new Set(row.values).size > 1 }))
    .filter((row) => inspection.depth === "all" || row.differs);
  // A search that matches no setting only filters the runs below.
  const found = rows.filter((row) => matches(row.values.map((value) => `${row.key}=${value}`).join(" ")));
  const shown = found.length ? found : rows;
  const count = (values, value) => values.filter((one) => one === value).length;
  const most = (values) => values.reduce((best, one) => (count(values, one) > count(values, best) ? one : best), values[0]);
  byId("settings").replaceChildren(shown.length === 0
    ? html("p", { class: "note" }, env.groups.length > 1 ? "All groups have the same settings." : "There is one group; choose Everything to see its settings.")
    : table(null, [["setting"], ...env.groups.map((group) => [group.label])], shown.map((row) => {
      // The most frequent value among the groups that have the setting.
      const usual = most(row.values.filter((value) => value !== "–"));
      return html("tr", {}, html("th", { scope: "row" }, ...marked(row.key)),
        ...row.values.map((value) => html("td", { class: row.differs && value !== usual && value !== "–" ? "odd" : undefined }, ...marked(value))));
    })));
}

const searchText = once((number) => {
  const run = report.runs[number];
  const flat = (entries) => Object.entries(entries).map(([key, value]) => `${key}=${valueText(value)}`).join(" ");
  return [`${run.env} ${run.label} seed ${run.seed} ${run.finished ? "finished" : "not finished"} ${run.place}`, flat(run.config), ...run.starts.map(flat)].join(" ");
});

// Keys of config or start that differ between the runs of an environment.
const differing = once((kind, env) => {
  const parts = report.runs.filter((run) => run.env === env).map((run) => (kind === "config" ? run.config : run.starts[0] ?? {}));
  const keys = [...new Set(parts.flatMap((part) => Object.keys(part)))];
  return new Set(keys.filter((key) => new Set(parts.map((part) => valueText(part[key]))).size > 1));
});

function drawRuns() {
  const numbers = report.runs.map((_, number) => number).filter((number) => matches(searchText(number)));
  byId("run-count").textContent = inspection.terms.length ? `${numbers.length} of ${report.runs.length}` : String(report.runs.length);
  byId("run-list").replaceChildren(...numbers.map((number) => {
    const run = report.runs[number];
    const start = run.starts[0] ?? {};
    const line = [
      html("b", {}, ...marked(runName(run))),
      run.finished ? html("span", {}, `${stepText(run.reached)} steps`) : html("span", { class: "mark" }, `not finished: ${stepText(run.reached)} of ${stepText(run.asked)} steps`),
      html("span", {}, run.final === null ? "no finished episode" : `final return ${written(run.final)}`),
      html("span", {}, run.minutes === null ? "" : `${run.minutes.toFixed(1)} min`),
      start.commit ? html("span", {}, `commit ${start.commit.slice(0, 8)}${start.modified === "yes" ? ", modified" : ""}`) : null,
    ];
    const details = html("details", {}, html("summary", {}, ...line));
    // Filled when it is opened.
    details.addEventListener("toggle", () => details.open && details.children.length === 1 && details.append(runDetail(run)));
    return details;
  }));
}

function runDetail(run) {
  const list = (title, entries, keys) => {
    const shown = Object.entries(entries).filter(([key]) => inspection.depth === "all" || keys.has(key));
    return html("dl", {}, html("h4", {}, title), ...(shown.length
      ? shown.flatMap(([key, value]) => [html("dt", {}, ...marked(key)), html("dd", {}, ...marked(valueText(value)))])
      : [html("dt", {}, "as in every other run")]));
  };
  const many = run.starts.length > 1;
  return html("div", { class: "detail" },
    list(inspection.depth === "all" ? "Configuration" : "Configuration, what differs", run.config, differing("config", run.env)),
    ...run.starts.map((start, k) => list(many ? `Start ${k + 1}` : "Provenance", k ? start : { folder: run.place, ...start },
      new Set([...differing("start", run.env), "folder", "command", "commit", "time"]))));
}

function startRuns() {
  byId("search").addEventListener("input", (event) => {
    inspection.terms = event.target.value.split(/[\s,]+/).filter(Boolean);
    drawSettings();
    drawRuns();
  });
  byId("depth").addEventListener("change", (event) => {
    inspection.depth = event.target.value;
    drawSettings();
    drawRuns();
  });
}
