// Asks for the moving part every two seconds, but only while somebody looks. The part carries
// data-live until the study or trial has ended; then the server answers with HX-Refresh and the page
// is loaded anew, charts and all. The title of the tab shows the share done (data-progress).
const EVERY_MS = 2000;
const title = document.title;

function poll() {
  const target = document.querySelector("[data-live]");
  if (!target) {
    clearInterval(timer);
    return;
  }
  showProgress(target);
  if (document.visibilityState === "visible") target.dispatchEvent(new Event("poll"));
}

function showProgress(target) {
  const done = Math.floor(Number(target.dataset.progress));
  document.title = Number.isFinite(done) ? `${done} % · ${title}` : title;
}

// A server that is down or restarting: say so until the next answer.
function lost(yes) {
  for (const notice of document.querySelectorAll("[data-live-lost]")) notice.hidden = !yes;
}
document.addEventListener("htmx:error", () => lost(true));
document.addEventListener("htmx:after:swap", () => lost(false));

const timer = setInterval(poll, EVERY_MS);
document.addEventListener("visibilitychange", poll);
poll();
