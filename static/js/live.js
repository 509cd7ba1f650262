// Asks for the live fragment every two seconds, but only while somebody looks. The fragment carries
// data-live until the study is terminal; then the server answers with HX-Refresh and the page is
// loaded anew, charts and all.
const EVERY_MS = 2000;

function poll() {
  const target = document.querySelector("[data-live]");
  if (target && document.visibilityState === "visible") target.dispatchEvent(new Event("poll"));
}

setInterval(poll, EVERY_MS);
document.addEventListener("visibilitychange", poll);
