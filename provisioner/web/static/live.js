// Keeps the page as the server knows it: tiles of the fleet by small frames, other parts by the server's own markup, fetched
// anew when it says that they changed. Without this script every page is complete, as of when it was loaded.

const main = document.getElementById("main");
const live = document.getElementById("live");
const news = document.getElementById("news");
const LEAST_MS = { frame: 2000, fleet: 10000 };
const NEWS_MS = 10000;
const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("provisioner", { createHTML: (text) => text })
  : { createHTML: (text) => text };

let source = null;
let lastId = main?.dataset.id;
let failures = 0;
let waiting = 0; // timer of the next attempt to connect
const isFleet = main !== null && "of" in main.dataset && main.dataset.of === "" && document.getElementById("elevations") !== null;

// --- what is told

let toldAt = 0;
let heard = new Map(); // servers that changed since the last news
let newsTimer = 0;

function tell() {
  newsTimer = 0;
  toldAt = Date.now();
  const changed = [...heard.values()];
  heard = new Map();
  if (changed.length === 0) return;
  news.textContent =
    changed.length <= 3 ? changed.join("; ") : `${changed.length} servers changed, ${changed[changed.length - 1]} last`;
}

function note(name, label) {
  heard.delete(name);
  heard.set(name, label);
  if (!newsTimer) newsTimer = setTimeout(tell, Math.max(0, toldAt + NEWS_MS - Date.now()));
}

function say(words, away) {
  if (live.textContent !== words) live.textContent = words;
  live.classList.toggle("away", away);
}

// --- the fleet, by frames

function apply(frame) {
  for (const [name, state, mark, label] of frame.rows ?? []) {
    const tile = document.getElementById(`s-${name}`);
    if (tile === null) continue;
    tile.className = `s ${state} changed`;
    tile.setAttribute("aria-label", label);
    tile.querySelector("b").textContent = mark;
    if (tile === document.activeElement) peekAt(tile);
    note(name, label);
  }
  for (const [key, count] of Object.entries(frame.counts ?? {})) {
    const shown = document.getElementById(`count-${key}`);
    if (shown !== null && shown.textContent !== String(count)) shown.textContent = count;
  }
  // Whole pages alone: one that was filtered shows what matched when it was asked for. Reasons follow at their own pace.
  if (frame.moved && "whole" in main.dataset) refresh("elevations");
  else refresh("waits");
}

// --- other parts, by the server's markup

let refreshedAt = Date.now() - LEAST_MS.fleet + LEAST_MS.frame;
let refreshTimer = 0;
let withTiles = false;

function refresh(what) {
  withTiles = withTiles || what === "elevations";
  if (refreshTimer) return;
  const least = isFleet ? LEAST_MS.fleet : LEAST_MS.frame;
  refreshTimer = setTimeout(load, Math.max(0, refreshedAt + least - Date.now()));
}

async function load() {
  const tilesToo = withTiles;
  withTiles = false;
  try {
    const address = new URL(location.href);
    if (isFleet && !tilesToo) address.searchParams.set("parts", "1"); // all but the racks
    const answer = await fetch(address, { headers: { Accept: "text/html" }, redirect: "error" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(policy.createHTML(await answer.text()), "text/html");
    const fresh = page.getElementById("main");
    if (fresh === null) return;
    for (const part of main.querySelectorAll("[data-part]")) {
      const other = fresh.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
      if (other !== null && other.innerHTML !== part.innerHTML) replace(part, other);
    }
    if (isFleet && tilesToo) {
      const racks = fresh.querySelector("#elevations");
      if (racks !== null) replace(document.getElementById("elevations"), racks);
      rove();
    }
    if (!isFleet && "again" in main.dataset && !("again" in fresh.dataset)) delete main.dataset.again;
  } catch {
    // the connection says so itself
  } finally {
    refreshedAt = Date.now();
    refreshTimer = 0;
  }
}

function replace(part, other) {
  const had = document.activeElement;
  const within = had !== null && part.contains(had);
  const [id, href] = within ? [had.id, had.getAttribute("href")] : [];
  part.replaceChildren(...other.childNodes);
  if (!within) return;
  const again =
    (id && document.getElementById(id)) || (href && part.querySelector(`a[href="${CSS.escape(href)}"]`)) || part.querySelector("a,[tabindex]");
  again?.focus({ preventScroll: true });
}

// --- the connection

function connect() {
  waiting = 0;
  if (source !== null || document.hidden) return;
  const of = main.dataset.of;
  const query = new URLSearchParams({ after: lastId ?? "" });
  if (of) query.set("of", of);
  source = new EventSource(`/events?${query}`);
  source.onopen = () => {
    failures = 0;
    say("Live", false);
  };
  source.addEventListener("fleet", (event) => {
    lastId = event.lastEventId;
    if (isFleet) apply(JSON.parse(event.data));
  });
  source.addEventListener("changed", (event) => {
    lastId = event.lastEventId;
    refresh("parts");
  });
  source.addEventListener("reset", (event) => {
    lastId = event.lastEventId;
    refresh("elevations");
  });
  source.onerror = () => {
    disconnect();
    failures += 1;
    say("Not connected: what you see may be old", true);
    const seconds = Math.min(30, 2 ** Math.min(failures, 5)) * (0.5 + Math.random() / 2);
    waiting = setTimeout(connect, seconds * 1000);
  };
}

function disconnect() {
  clearTimeout(waiting);
  source?.close();
  source = null;
}

// --- the keyboard

const tiles = () => [...document.querySelectorAll("#elevations .s")];
const peek = document.getElementById("peek");

function peekAt(tile) {
  if (peek !== null) peek.textContent = tile?.getAttribute("aria-label") ?? "";
}

function rove() {
  // One stop for all servers: who goes through the page by Tab is not sent through ten thousand links.
  let first = true;
  for (const tile of tiles()) {
    tile.tabIndex = first ? 0 : -1;
    first = false;
  }
}

function move(tile, key) {
  // By its neighbours alone: of ten thousand tiles nobody looks through all for each key.
  const rack = tile.closest(".rack") ?? document.getElementById("elevations");
  const own = [...rack.querySelectorAll(".s")];
  const at = own.indexOf(tile);
  const of = (other, place) => [...(other?.matches(".rack") ? other.querySelectorAll(".s") : [])].at(place);
  const [before, after] = [rack.previousElementSibling, rack.nextElementSibling];
  if (key === "ArrowDown") return own[at + 1] ?? of(after, 0);
  if (key === "ArrowUp") return at > 0 ? own[at - 1] : of(before, -1);
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const other = key === "ArrowRight" ? after : before;
    return of(other, at) ?? of(other, -1);
  }
  const racks = rack.matches(".rack") ? rack.parentElement.children : [rack];
  if (key === "Home") return racks[0].querySelector(".s");
  return [...racks[racks.length - 1].querySelectorAll(".s")].at(-1);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const search = document.getElementById("q");
  const typing = event.target.matches?.("input, select, textarea");
  if ((event.key === "/" && !typing) || (event.key === "Escape" && event.target.matches?.(".s"))) {
    if (search === null) return;
    event.preventDefault();
    search.focus();
    return;
  }
  if (event.key === "Escape" && event.target === search) {
    document.querySelector('#elevations .s[tabindex="0"]')?.focus();
    return;
  }
  if (!["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
  if (!event.target.matches?.("#elevations .s")) return;
  event.preventDefault();
  const next = move(event.target, event.key);
  if (next === undefined) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
document.addEventListener("focusin", (event) => peekAt(event.target.matches?.("#elevations .s") ? event.target : null));
document.addEventListener("mouseover", (event) => {
  const tile = event.target.closest?.("#elevations .s");
  if (tile) peekAt(tile);
});
document.addEventListener("animationend", (event) => event.target.classList?.remove("changed"));
document.addEventListener("visibilitychange", () => {
  // Six connections are all that a browser makes to one host by HTTP/1.1: a page that nobody sees holds none.
  if (document.hidden) disconnect();
  else connect();
});
addEventListener("pagehide", disconnect);
addEventListener("pageshow", (event) => {
  if (event.persisted) connect();
});

if (main !== null && "of" in main.dataset) {
  rove();
  const keys = document.getElementById("keys");
  if (keys !== null) keys.hidden = false;
  connect();
  setInterval(() => {
    if (!document.hidden && "again" in main.dataset && failures === 0) refresh("parts");
  }, 10000);
  document.documentElement.dataset.ready = "1";
}
