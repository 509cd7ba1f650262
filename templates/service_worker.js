// Keeps one page and its style sheets, and shows that page when a page cannot be fetched. Nothing else
// is kept: every answer of the server itself goes through untouched.
const CACHE = "offline-{{ version }}-{{ language }}";
const PAGE = "/offline/";
const FILES = [PAGE{% for sheet in sheets %}, "{{ sheet|escapejs }}"{% endfor %}];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
  skipWaiting();
});

addEventListener("activate", (event) => {
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)))));
});

addEventListener("fetch", (event) => {
  const { request } = event;
  const kept = FILES.includes(new URL(request.url).pathname);
  if (request.mode === "navigate" && request.method === "GET") {
    event.respondWith(fetch(request).catch(() => caches.match(PAGE)));
  } else if (kept) {
    event.respondWith(fetch(request).catch(() => caches.match(request)));
  }
});
