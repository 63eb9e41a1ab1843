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
  byId("remarks").append(...report.remarks.map((text) => html("li", {}, text)));
}

function chooseEnv(number) {
  curves.env = number;
  curves.cursor = null;
  chooseTableEnv();
  drawMethodChips();
  drawCurves();
  drawTable();
  drawSettings();
  const env = report.envs[number].name;
  const sample = report.samples.findIndex((one) => report.runs[one.run].env === env);
  play(false);
  if (sample >= 0) chooseSample(sample);
  else if (report.samples.length && explorer.number === null) chooseSample(0);
  byId("other-sample").hidden = sample >= 0 || report.samples.length === 0;
  byId("other-sample").textContent = `No run of ${env} has an embedding; the states shown are of another environment.`;
}

function startTheme() {
  byId("theme").addEventListener("change", (event) => {
    document.documentElement.dataset.theme = event.target.value;
    drawStates(); // everything else is coloured by the style sheet
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawStates);
  // Printed pages are light; the canvas does not follow the style sheet by itself.
  window.addEventListener("beforeprint", drawStates);
  window.addEventListener("afterprint", drawStates);
}

drawIntro();
options(byId("env"), report.envs.map((env, k) => [k, env.name]));
byId("env-choice").hidden = report.envs.length < 2;
byId("env").addEventListener("change", (event) => chooseEnv(Number(event.target.value)));
startTheme();
startCurves();
startTable();
startRuns();
startExplorer();
// Start with the environment that has the most groups.
const richest = report.envs.reduce((best, env, k) => (env.groups.length > report.envs[best].groups.length ? k : best), 0);
byId("env").value = String(richest);
chooseEnv(richest);
drawRuns();
document.documentElement.dataset.ready = String(Math.round(performance.now())); // milliseconds since the page was opened
