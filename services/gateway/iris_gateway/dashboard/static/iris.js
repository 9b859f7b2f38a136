// Keeps a page fresh: listens for events, and when something has happened puts the server's new page in place of
// the old one. Without this script every page is complete; it only has to be loaded again.

const main = document.querySelector("main");
const live = document.querySelector(".live");
const { events, within } = document.body.dataset;
const PAUSE_MS = 1000;

let due = null;
let busy = false;

function say(words) {
  live.hidden = false;
  live.textContent = words;
}

function soon() {
  if (due === null) due = setTimeout(refresh, PAUSE_MS);
}

async function refresh() {
  due = null;
  if (busy || document.hidden || main.contains(document.activeElement)) return soon();
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return say("not fresh: the gateway does not answer");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const logs = [...main.querySelectorAll(".log")].map((log) => log.scrollTop);
    main.replaceChildren(...page.querySelector("main").childNodes);
    main.querySelectorAll(".log").forEach((log, at) => (log.scrollTop = logs[at] ?? 0));
    say("live");
  } catch {
    say("not fresh: the gateway cannot be reached");
  } finally {
    busy = false;
  }
}

if (!document.querySelector("form[method=post]")) {
  const query = new URLSearchParams({ follow: "true" });
  if (within) query.set("within", within);
  const source = new EventSource(`/v1/events?${query}`);
  source.onopen = () => say("live");
  source.onerror = () => say("not fresh: reconnecting");
  for (const type of events.split(" ")) source.addEventListener(type, soon);
}
