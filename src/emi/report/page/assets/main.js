// The whole page: title, environment, theme.

function drawIntro() {
  const { runs, envs, samples } = report;
  const methods = new Set(runs.map((run) => run.method));
  const groups = envs.reduce((sum, env) => sum + env.groups.length, 0);
  byId("title").textContent = envs.length === 1 ? envs[0].name : `${plural(envs.length, "environment")}, ${plural(runs.length, "run")}`;
  document.title = `emi report: ${envs.map((env) => env.name).join(", ")}`;
  const minutes = runs.reduce((sum, run) => sum + (run.minutes ?? 0), 0);
  const open = runs.filter((run) => !run.finished).length;
  const facts = {
    runs: whole(runs.length),
    "not finished": open ? whole(open) : null,
    [methods.size === 1 ? "method" : "methods"]: whole(methods.size),
    "groups of seeds": groups > methods.size ? whole(groups) : null,
    "environment steps": stepText(runs.reduce((sum, run) => sum + run.reached, 0)),
    "of training": minutes >= 90 ? `${written(Number((minutes / 60).toFixed(1)))} h` : `${written(Number(minutes.toFixed(1)))} min`,
    "states in the explorer": samples.length ? whole(samples.reduce((sum, sample) => sum + sample.count, 0)) : null,
  };
  byId("facts").append(...Object.entries(facts).filter(([, value]) => value !== null).map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))));
  byId("remarks").hidden = report.remarks.length === 0;
  byId("remarks-title").textContent = plural(report.remarks.length, "remark");
  byId("remark-list").append(...report.remarks.map((text) => html("li", {}, text)));
}

// Show the view; what depends on the environment alone is drawn when it has changed.
let shownEnv = null;
let coverageShown = null; // resolves when its maps are drawn
function showView() {
  if (shownEnv !== view.env) {
    shownEnv = view.env;
    showEnv();
  }
  showCurveControls();
  byId("reference").value = String(view.base);
  drawTable();
  return drawCurves();
}

function showEnv() {
  curves.cursor = null;
  byId("env").value = String(view.env);
  drawMeasures();
  drawReferenceChoice();
  drawSettings();
  drawPlans();
  drawVideos();
  coverageShown = showCoverage();
  const env = envNow().name;
  const sample = report.samples.findIndex((one) => report.runs[one.run].env === env);
  play(false);
  if (sample >= 0) chooseSample(sample);
  else if (report.samples.length && explorer.number === null) chooseSample(0);
  byId("other-sample").hidden = sample >= 0 || report.samples.length === 0;
  byId("other-sample").textContent = `No run of ${env} has an embedding; the states shown are of another environment.`;
}

// Links within the page scroll without changing the address, which holds the view.
function startLinks() {
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    const section = byId(link.hash.slice(1));
    section.tabIndex = -1;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      section.scrollIntoView();
      section.focus({ preventScroll: true });
    });
  }
}

function drawCanvases() {
  drawStates();
  drawMaps();
}

function startTheme() {
  byId("theme").addEventListener("change", (event) => {
    document.documentElement.dataset.theme = event.target.value;
    drawCanvases(); // everything else is coloured by the style sheet
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCanvases);
  // Printed pages are light; a canvas does not follow the style sheet by itself.
  window.addEventListener("beforeprint", drawCanvases);
  window.addEventListener("afterprint", drawCanvases);
}

drawIntro();
options(byId("env"), report.envs.map((env, k) => [k, env.name]));
byId("env-choice").hidden = report.envs.length < 2;
byId("env").addEventListener("change", (event) => change({ env: Number(event.target.value) }));
startTheme();
startLinks();
startCurves();
startCurveZoom();
startDownloads();
startTable();
startRuns();
startExplorer();
startCoverage();
startPlans();
drawRuns();
window.addEventListener("popstate", () => {
  forgetGesture();
  readView(location.hash.slice(1));
  showView();
});
readView(location.hash.slice(1));
await Promise.all([showView(), coverageShown]);
document.documentElement.dataset.ready = String(Math.round(performance.now())); // milliseconds since the page was opened
