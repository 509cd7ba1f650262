// Theme switch, copy buttons, rows of a form that can be added and removed. Every page works without them.
const order = ["system", "light", "dark"];
const themeButton = document.querySelector("[data-theme-switch]");
const themeNow = () => document.documentElement.dataset.theme ?? "system";

function showTheme() {
  if (!themeButton) return;
  themeButton.hidden = false;
  themeButton.querySelector("span").textContent = themeButton.dataset[themeNow()];
}

themeButton?.addEventListener("click", () => {
  const next = order[(order.indexOf(themeNow()) + 1) % order.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try { localStorage.setItem("theme", next); } catch { /* storage may be off */ }
  showTheme();
  document.dispatchEvent(new Event("themechange"));
});
showTheme();

// Words that only scripts show; the page brings them in its language.
const words = document.body.dataset;

// The clipboard exists only over https and on localhost; elsewhere the text is selected instead.
async function copy(source) {
  try {
    await navigator.clipboard.writeText(source.innerText);
    return true;
  } catch {
    getSelection().selectAllChildren(source);
    return false;
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const label = button.querySelector("span");
  const before = label.dataset.before ?? label.textContent;
  label.dataset.before = before;
  label.textContent = (await copy(document.getElementById(button.dataset.copy))) ? words.copied : words.selected;
  setTimeout(() => { label.textContent = before; }, 1600);
});
for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;

// Parts of a form that belong to one choice: shown with it, all shown without JavaScript.
// A part may name several choices: it is shown when one of them has a value of its list.
function chosen(name) {
  return document.querySelector(`[name="${name}"]:checked, select[name="${name}"]`)?.value;
}
function showParts() {
  for (const part of document.querySelectorAll("[data-part]")) {
    const wanted = part.dataset.value.split(" ");
    part.hidden = !part.dataset.part.split(" ").some((name) => wanted.includes(chosen(name)));
  }
}
const partNames = new Set([...document.querySelectorAll("[data-part]")].flatMap((part) => part.dataset.part.split(" ")));
document.addEventListener("change", (event) => { if (partNames.has(event.target.name)) showParts(); });
showParts();

// A unit and the list of statistics follow the metric of their row.
function followMetric(row) {
  const chosen = row.querySelector("[data-metric]").selectedOptions[0];
  row.querySelector("[data-shown-unit]").textContent = chosen.dataset.unit ?? "";
  row.querySelector("[data-shown-sign]").textContent = chosen.dataset.sign ?? "";
  const allowed = (chosen.dataset.statistics ?? "").split(" ");
  const statistic = row.querySelector("[data-statistic]");
  for (const option of statistic.options) option.hidden = option.disabled = !allowed.includes(option.value);
  if (statistic.selectedOptions[0]?.disabled) statistic.value = allowed[0];
}
for (const row of document.querySelectorAll("[data-row]")) {
  row.querySelector("[data-metric]").addEventListener("change", () => followMetric(row));
  followMetric(row);
}

// A preset fills the fields that it names; what was typed by hand is kept.
const touched = new Set();
document.addEventListener("input", (event) => { if (event.isTrusted) touched.add(event.target.name); });
for (const radio of document.querySelectorAll("[data-preset]")) {
  radio.addEventListener("change", () => {
    for (const [name, value] of Object.entries(JSON.parse(radio.dataset.preset))) {
      const field = document.getElementsByName(name)[0];
      if (field && !touched.has(name)) field.value = value ?? "";
    }
  });
}

// An upload: the chosen or dropped file's name in the button, and a word while the server reads it.
for (const form of document.querySelectorAll("[data-drop]")) {
  const input = form.querySelector("input[type=file]");
  const name = form.querySelector("[data-drop-name]");
  const empty = name.textContent;
  input.addEventListener("change", () => { name.textContent = input.files[0]?.name ?? empty; });
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    if (!event.dataTransfer.files.length) return;
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change"));
  });
  form.addEventListener("submit", () => {
    const button = form.querySelector("[data-busy]");
    button.textContent = button.dataset.busy;
    button.disabled = true;
  });
}

// Keeps a page to show while the server cannot be reached. Browsers offer this over https and on localhost.
navigator.serviceWorker?.register("/sw.js").catch(() => { /* the page works without it */ });
