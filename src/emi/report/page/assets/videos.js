// Videos of runs of the chosen environment, recorded by `emi watch` and `emi plan`.

function drawVideos() {
  const env = envNow().name;
  const own = report.videos.map((video, number) => ({ ...video, number })).filter(({ run }) => report.runs[run].env === env);
  byId("videos").hidden = own.length === 0;
  document.querySelector('nav a[href="#videos"]').hidden = own.length === 0;
  byId("video-list").replaceChildren(...own.map(({ run, type, shows, number }) => {
    const src = `data:${type};base64,${byId(`video-${number}`).textContent}`;
    const name = `${runName(report.runs[run])}: ${shows}`;
    const media = type.startsWith("video/")
      ? html("video", { src, controls: true, loop: true, muted: true, playsinline: true, "aria-label": name })
      : html("img", { src, alt: name });
    return html("figure", {}, media, html("figcaption", {}, swatch(report.runs[run].label), name));
  }));
}
