// Keeps a page fresh: listens for events, and when something has happened patches the page into what the server would
// send now. Elements that did not change stay, so focus, selection and scroll positions do. Without this script every
// page is complete; it only has to be loaded again.

const live = document.querySelector(".live");
const { events, within, deployment } = document.body.dataset;
const PAUSE_MS = 1000;
const TICK_MS = 10000;

let due = null;
let busy = false;
let source = null;
let tookMs = 0;

function say(words) {
  live.hidden = false;
  live.textContent = words;
}

function soon() {
  if (due === null) due = setTimeout(refresh, Math.max(PAUSE_MS, 4 * tookMs));
}

async function refresh() {
  due = null;
  if (busy || document.hidden) return;
  busy = true;
  const began = performance.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return say(`not fresh since ${clock()}: the gateway does not answer`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.title = page.title;
    patch(document.querySelector("main"), page.querySelector("main"));
    countChosen();
    say("live");
  } catch {
    say(`not fresh since ${clock()}: the gateway cannot be reached`);
  } finally {
    busy = false;
    tookMs = performance.now() - began;
  }
}

function clock() {
  return new Date().toISOString().slice(11, 19);
}

// Make `old` equal to `fresh`, touching only what differs. Children with an id are matched by it, others by place.
function patch(old, fresh) {
  if (old.isEqualNode(fresh) || old === typing() || old.dataset?.own === "") return;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const known = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  const kept = new Set([...fresh.children].map((child) => child.id));
  for (const [id, child] of known) if (!kept.has(id)) child.remove();
  old.normalize();
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const found = wanted.id ? known.get(wanted.id) : placed(at, wanted);
    if (found) {
      while (!wanted.id && at !== found) at = removed(at);
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      if (found.nodeType === Node.ELEMENT_NODE) patch(found, wanted);
      else if (found.data !== wanted.data) found.data = wanted.data;
    } else {
      old.insertBefore(document.adoptNode(wanted), at);
    }
  }
  while (at) at = removed(at);
}

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// The element at this place if it is of the kind that is wanted, else one of its class a little further on: what stood
// between is gone.
function placed(at, wanted) {
  if (at && !at.id && like(at, wanted)) return at;
  for (let left = 4; at && left > 0; at = at.nextSibling, left--) {
    if (at.id) return null;
    if (like(at, wanted) && at.nodeType === Node.ELEMENT_NODE && at.className === wanted.className) return at;
  }
  return null;
}

function like(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
}

// The element that somebody types into, which is left alone; nothing else is.
function typing() {
  const active = document.activeElement;
  return active && active.matches("main input, main select, main textarea") ? active : null;
}

// Ages grow without asking the server.
function tick() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    if (seconds < 0) continue;
    const words = `${coarse(seconds)} ago`;
    if (time.textContent !== words) time.textContent = words;
  }
}

function coarse(seconds) {
  for (const [unit, size, least] of [["d", 86400, 2], ["h", 3600, 2], ["min", 60, 1]]) {
    if (seconds >= least * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

// One stream for each tab that can be seen: a browser opens six connections to a host at most.
function listen() {
  const query = new URLSearchParams({ follow: "true" });
  if (within) query.set("within", within);
  if (deployment) query.set("deployment", deployment);
  source = new EventSource(`/v1/events?${query}`);
  source.onopen = () => say("live");
  source.onerror = () => say(`not fresh since ${clock()}: reconnecting`);
  for (const type of events.split(" ")) source.addEventListener(type, soon);
}

function shown() {
  if (document.hidden) {
    source?.close();
    source = null;
  } else if (source === null) {
    listen();
    soon();
  }
}

// A button copies the text behind it; where a page has no clipboard (plain HTTP on a network) the text is selected.
async function copy(button) {
  const text = button.nextElementSibling;
  if (!navigator.clipboard) return getSelection().selectAllChildren(text);
  await navigator.clipboard.writeText(text.textContent);
  say("copied");
}

// The button of the list of jobs says how many are chosen.
function countChosen() {
  const button = document.querySelector("#chosen button");
  if (!button) return;
  const count = document.querySelectorAll("input[form=chosen]:checked").length;
  button.disabled = count === 0;
  button.textContent = count ? `Cancel ${count} chosen` : "Cancel chosen jobs";
}

const PLACES = { o: "/", j: "/jobs", q: "/queue", w: "/workers", d: "/deployments", e: "/events", s: "/system" };
const OFF = "iris-keys-off";
const help = document.querySelector("#help");
let going = false;

// Keys never act in fields, and a switch in their list turns them off.
function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  if (localStorage.getItem(OFF) && event.key !== "?") return;
  const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (going && PLACES[event.key]) location.href = PLACES[event.key];
  else if (event.key === "?") help.showModal();
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (event.key === "x") document.activeElement.closest("tr")?.querySelector("[type=checkbox]")?.click();
  else if (target) act(target, event);
  going = event.key === "g";
}

function act(target, event) {
  event.preventDefault();
  if (target.matches("a, button")) return target.click();
  target.scrollIntoView({ block: "nearest" });
  target.focus();
}

// The next or previous row's link.
function step(by) {
  const names = [...document.querySelectorAll("main tr .name, main .rows .name")];
  const at = names.indexOf(document.activeElement.closest("tr, li")?.querySelector(".name"));
  names[Math.max(0, Math.min(names.length - 1, at + by))]?.focus();
}

function switchKeys(event) {
  if (event.target.checked) localStorage.removeItem(OFF);
  else localStorage.setItem(OFF, "1");
}

document.addEventListener("keydown", key);
document.addEventListener("change", countChosen);
document.addEventListener("click", (event) => event.target.matches(".copy") && copy(event.target));
document.querySelector("#keys").onclick = () => help.showModal();
const keys = help.querySelector("[type=checkbox]");
keys.checked = !localStorage.getItem(OFF);
keys.onchange = switchKeys;
countChosen();
const log = document.querySelector("#log");
if (log) import("./log.js").then(({ Log }) => new Log(log, say));
setInterval(tick, TICK_MS);
if (document.body.hasAttribute("data-live")) {
  document.addEventListener("visibilitychange", shown);
  if (!document.hidden) listen();
}
