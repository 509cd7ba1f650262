// Draws every figure found in the page. A figure is JSON in <script type="application/json">, built by the
// server with token names instead of colours ("token:series-1", "token:series-1/0.16"); this module resolves
// the names against the current theme, so one figure serves light, dark and print.
const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);

function colour(name) {
  const [token, alpha] = name.slice(6).split("/");
  probe.style.color = `var(--${token})`;
  const rgb = getComputedStyle(probe).color;
  return alpha ? rgb.replace("rgb(", "rgba(").replace(")", `, ${alpha})`) : rgb;
}

function resolve(value) {
  if (typeof value === "string") return value.startsWith("token:") ? colour(value) : value;
  if (Array.isArray(value)) return value.map(resolve);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(v)]));
  return value;
}

const merge = (base, over = {}) => Object.fromEntries([...new Set([...Object.keys(base), ...Object.keys(over)])].map((k) => [
  k, over[k] && typeof over[k] === "object" && !Array.isArray(over[k]) ? merge(base[k] ?? {}, over[k]) : over[k] ?? base[k],
]));

const axis = () => ({
  gridcolor: colour("token:chart-grid"), linecolor: colour("token:chart-axis"), tickcolor: colour("token:chart-axis"),
  zeroline: false, ticks: "outside", ticklen: 4, showline: true, automargin: true, fixedrange: true,
  tickfont: { size: 11, color: colour("token:ink-3") }, title: { font: { size: 12, color: colour("token:ink-2") }, standoff: 8 },
});

function template() {
  const font = getComputedStyle(document.body).fontFamily;
  return {
    layout: {
      font: { family: font, size: 12, color: colour("token:ink-2") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 52, r: 16, t: 12, b: 44 }, showlegend: false, hovermode: "closest",
      hoverlabel: { bgcolor: colour("token:surface"), bordercolor: colour("token:line-strong"), font: { family: font, size: 12, color: colour("token:ink") } },
      xaxis: axis(), yaxis: axis(),
    },
  };
}

// Redraw on any change of width: window, panel, print.
const watch = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (Math.abs(target.clientWidth - (target._fullLayout?.width ?? 0)) > 1) draw(target);
  }
});

function draw(box) {
  const holder = document.getElementById(box.dataset.figure);
  if (!holder || typeof Plotly === "undefined" || box.offsetParent === null) return;
  const figure = resolve(JSON.parse(holder.textContent));
  const narrow = box.clientWidth < 420; // on phones: labels named "wide" are dropped, "narrow" ones appear, layout.narrow wins
  const unwanted = narrow ? "wide" : "narrow";
  const annotations = figure.layout.annotations?.filter((label) => label.name !== unwanted);
  const base = narrow ? merge(figure.layout, figure.layout.narrow) : figure.layout;
  const layout = { ...base, narrow: undefined, annotations, width: box.clientWidth, height: box.clientHeight, template: template() };
  box.querySelector(":scope > .figure-svg")?.remove();
  Plotly.react(box, figure.data, layout, { displayModeBar: false, responsive: false });
  box.closest(".chart")?.setAttribute("data-drawn", "");
  watch.observe(box);
  const save = box.parentElement.querySelector("[data-save]");
  if (save) save.hidden = false;
}

// plotly would take a blob: address, which the content policy refuses for images.
async function toPng(svg, { width, height }) {
  const image = new Image();
  image.src = svg;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * 2;
  canvas.height = height * 2;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}

// Saves what is drawn, in the current theme, on the colour of its panel.
async function savePicture(button) {
  const box = button.closest("[data-chart]").querySelector("[data-figure]");
  const format = button.value;
  const { data, layout } = box;
  const size = { width: box.clientWidth, height: box.clientHeight };
  const figure = { data, layout: { ...layout, template: template(), paper_bgcolor: colour("token:surface") } };
  const svg = await Plotly.toImage(figure, { format: "svg", ...size });
  const url = format === "svg" ? svg : await toPng(svg, size);
  const link = document.createElement("a");
  link.href = url;
  link.download = `${box.closest("[data-chart]").dataset.chart}.${format}`;
  link.click();
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-save] button");
  if (button) savePicture(button);
});

const drawAll = () => document.querySelectorAll("[data-figure]").forEach(draw);
for (const event of ["themechange", "panelchange"]) document.addEventListener(event, drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

// Paper is always light: redraw before printing, restore afterwards.
let themeOnScreen;
addEventListener("beforeprint", () => {
  themeOnScreen = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  drawAll();
});
addEventListener("afterprint", () => {
  if (themeOnScreen) document.documentElement.dataset.theme = themeOnScreen;
  else delete document.documentElement.dataset.theme;
  drawAll();
});

// Charts that share a box: one at a time, its title on top. Without this script all are shown.
function show(figure, id) {
  for (const one of figure.querySelectorAll("[data-chart]")) one.hidden = one.dataset.chart !== id;
  figure.dataset.chosen = id;
  for (const button of figure.querySelectorAll("[data-show-chart]")) {
    button.setAttribute("aria-pressed", String(button.dataset.showChart === id));
  }
  const own = figure.querySelector(`[data-chart="${id}"] [data-own-title]`);
  figure.querySelector(".chart__head .chart__title").textContent = own?.textContent ?? figure.dataset.firstTitle;
  figure.querySelectorAll(`[data-chart="${id}"] [data-figure]`).forEach(draw);
}
for (const group of document.querySelectorAll("[data-switch]")) {
  const figure = group.closest(".chart");
  figure.dataset.firstTitle = figure.querySelector(".chart__head .chart__title").textContent;
  for (const title of figure.querySelectorAll("[data-own-title]")) title.hidden = true;
  for (const button of group.querySelectorAll("[data-show-chart]")) {
    button.addEventListener("click", () => show(figure, button.dataset.showChart));
  }
  show(figure, group.querySelector("[data-show-chart]").dataset.showChart);
}
drawAll();
