// Keeps a page fresh: hears when something has happened, and patches what has changed since into the page. Elements that
// did not change stay, so focus, selection and scroll positions do. Without this script every page is complete; it only
// has to be loaded again.

const live = document.querySelector(".live");
const main = document.querySelector("main");
const { within, deployment, every } = document.body.dataset;
const TICK_MS = 1000;

let busy = false;
let again = false;
let source = null;

function say(words) {
  live.hidden = false;
  live.textContent = words;
}

// The server paces the answers: a page that asks at once after an answer gets the next one a second later.
async function refresh() {
  again = true;
  if (busy) return;
  busy = true;
  try {
    while (again && !document.hidden) {
      again = false;
      await fetchChanges();
    }
  } catch {
    say(`not fresh since ${clock()}: the gateway cannot be reached`);
  } finally {
    busy = false;
  }
}

async function fetchChanges() {
  const headers = { accept: "text/html", "if-none-match": `"${main.dataset.version}"` };
  const answer = await fetch(location.href, { headers });
  if (answer.status !== 304 && !answer.ok) return say(`not fresh since ${clock()}: the gateway does not answer`);
  if (answer.ok) show(new DOMParser().parseFromString(await answer.text(), "text/html"));
  say("live");
}

function show(page) {
  document.title = page.title;
  const icon = document.querySelector("link[rel=icon]");
  const wanted = page.querySelector("link[rel=icon]").getAttribute("href");
  if (icon.getAttribute("href") !== wanted) icon.href = wanted;
  try {
    patch(main, page.querySelector("main"));
  } catch (error) {
    if (error !== MISSING) throw error;
    main.dataset.version = ""; // a part that was to be here is not: fetch all of them
    again = true;
  }
  countChosen();
}

function clock() {
  return new Date().toISOString().slice(11, 19);
}

const MISSING = new Error("a part is not in the page");

// Make `old` equal to `fresh`, touching only what differs. Children with an id are matched by it, others by place.
function patch(old, fresh) {
  if ("same" in fresh.dataset || old.isEqualNode(fresh) || old === typing() || old.dataset?.own === "") return;
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
      if (wanted.matches?.("[data-same]") || wanted.querySelector?.("[data-same]")) throw MISSING;
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

// Ages and durations grow without asking the server.
function tick() {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[datetime]")) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    if (seconds < 0) continue;
    const words = "lasts" in time.dataset ? duration(seconds) : `${coarse(seconds)} ago`;
    if (time.textContent !== words) time.textContent = words;
  }
}

// As `duration` in drawings/bars.py.
function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return both(minutes, "min", Math.floor(seconds % 60), "s");
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? both(hours, "h", minutes % 60, "min") : both(Math.floor(hours / 24), "d", hours % 24, "h");
}

function both(large, unit, small, smaller) {
  return small ? `${large} ${unit} ${small} ${smaller}` : `${large} ${unit}`;
}

function coarse(seconds) {
  for (const [unit, size, least] of [["d", 86400, 2], ["h", 3600, 2], ["min", 60, 1]]) {
    if (seconds >= least * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

// One stream for each tab that can be seen: a browser opens six connections to a host at most. It tells when something has
// happened since the page was made.
function listen() {
  const query = new URLSearchParams({ after: main.dataset.at });
  if (within) query.set("within", within);
  if (deployment) query.set("deployment", deployment);
  source = new EventSource(`/changes?${query}`);
  source.onopen = () => say("live");
  source.onerror = () => say(`not fresh since ${clock()}: reconnecting`);
  source.addEventListener("change", refresh);
}

function shown() {
  if (document.hidden) {
    source?.close();
    source = null;
  } else if (source === null) {
    listen();
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

// Filters of the list of jobs that this browser keeps as links; each is forgotten by its own button.
const SAVED = "iris-filters";
const saved = document.querySelector("#saved");

function filters() {
  return JSON.parse(localStorage.getItem(SAVED) ?? "[]");
}

function showFilters() {
  saved.replaceChildren(...filters().flatMap((query) => {
    const words = [...new URLSearchParams(query)].map(([name, value]) => `${name.replace("_prefix", "")} ${value}`).join(", ");
    const link = Object.assign(document.createElement("a"), { href: `?${query}`, textContent: words });
    if (location.search === `?${query}`) link.setAttribute("aria-current", "page");
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "×", title: `Forget ${words}` });
    button.className = "plain";
    button.onclick = () => keep(filters().filter((other) => other !== query));
    return [link, button];
  }));
}

function keep(queries) {
  localStorage.setItem(SAVED, JSON.stringify(queries));
  showFilters();
}

function saveFilter() {
  const query = new URLSearchParams([...new FormData(document.querySelector("form.filter"))].filter(([, value]) => value));
  if (`${query}`) keep([...new Set([...filters(), `${query}`])]);
}

const PLACES = { o: "/", j: "/jobs", q: "/queue", w: "/workers", f: "/fleet", d: "/deployments", e: "/events", s: "/system" };
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
if (saved) {
  showFilters();
  document.querySelector("#save").onclick = saveFilter;
}
const log = document.querySelector("#log");
if (log) import("./log.js").then(({ Log }) => new Log(log, say));
setInterval(tick, TICK_MS);
if (document.body.hasAttribute("data-live")) {
  document.addEventListener("visibilitychange", shown);
  if (!document.hidden) listen();
  if (every) setInterval(refresh, every * 1000); // what is measured changes without an event
}
