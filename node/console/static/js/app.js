// The frame around the pages: which page is shown, when it looks again, and how the cluster is.

import { Refused, get, pollMs } from "./client.js";
import { failure, h, loading, put } from "./dom.js";
import { accessPage } from "./pages/access.js";
import { clusterPage } from "./pages/cluster.js";
import { groupsPage } from "./pages/groups.js";
import { messagesPage } from "./pages/messages.js";
import { topicsPage } from "./pages/topics.js";
import { wheelPage } from "./pages/wheel.js";

const PAGES = {
  cluster: ["Cluster", clusterPage],
  wheel: ["Wheel", wheelPage],
  topics: ["Topics", topicsPage],
  groups: ["Groups", groupsPage],
  messages: ["Messages", messagesPage],
  access: ["Access", accessPage],
};
const HISTORY_MS = 600_000;
const RETRY_MS_MAX = 15_000;

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const pill = document.getElementById("pill");
const banner = document.getElementById("banner");

/** What all pages know of the cluster. */
const state = { cluster: null, history: [], readOnly: "", lost: "" };

let page = null;
let root = null;
let hasShown = false;
let shown = "";
const trouble = h("div", { class: "trouble" });
let abort = new AbortController();

put(
  nav,
  Object.entries(PAGES).map(([name, [title]]) => h("a", { href: `#/${name}` }, title)),
);

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which page is shown
  main.focus();
});

/** The address: "#/messages/<id>?topic=x" is ["messages", ["<id>"], {topic: "x"}]. */
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  let words = rest;
  try {
    words = rest.map(decodeURIComponent);
  } catch {
    words = []; // an address that nobody here has made
  }
  return [PAGES[name] ? name : "cluster", words, Object.fromEntries(new URLSearchParams(query))];
}

function open() {
  const [name, words, question] = place();
  for (const link of nav.children) {
    const isHere = link.getAttribute("href") === `#/${name}`;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${PAGES[name][0]} - Hourwheel`;
  abort.abort();
  abort = new AbortController();
  const isOther = name !== shown;
  const hadFocus = main.contains(document.activeElement);
  shown = name;
  root = h("div", { class: `page page-${name}` }, loading());
  hasShown = false;
  put(trouble);
  put(main, trouble, root);
  page = PAGES[name][1]({ root, state, words, question, signal: abort.signal, look });
  // What had the focus is gone: whoever uses the keyboard goes on from the top of the page.
  const isLost = isOther ? document.activeElement !== document.body : hadFocus;
  if (isLost) main.focus({ preventScroll: true });
  look();
}

function tellHealth() {
  const { cluster, lost } = state;
  const problems = cluster?.problems ?? [];
  const isBad = lost || problems.some((one) => one.level === "bad");
  pill.dataset.level = isBad ? "bad" : problems.length ? "warn" : cluster ? "ok" : "none";
  pill.textContent = lost
    ? "No answer"
    : !cluster
      ? "Connecting"
      : isBad
        ? "Needs attention"
        : problems.length
          ? "Degraded"
          : "Healthy";
  const words = lost
    ? `${lost} What is shown is from before; it is tried again by itself.`
    : state.readOnly && `Read-only: ${state.readOnly}`;
  banner.hidden = !words;
  banner.dataset.level = lost ? "bad" : "warn";
  if (banner.textContent !== (words || "")) banner.textContent = words || "";
  document.body.toggleAttribute("data-read-only", Boolean(lost || state.readOnly));
}

async function lookAtCluster() {
  const since = state.history.at(-1)?.at_ms ?? 0;
  const found = await get("cluster", { since_ms: since });
  state.cluster = found;
  state.readOnly = found.read_only_because;
  const oldest = found.now_ms - HISTORY_MS;
  state.history = [...state.history, ...found.history].filter((one) => one.at_ms > oldest);
  state.lost = "";
}

/** Let the page look; what it has shown before stays, below what went wrong. */
async function refresh(signal) {
  if (signal.aborted) return;
  try {
    if (!state.cluster) throw new Error(state.lost);
    await page.refresh();
    if (signal.aborted) return;
    hasShown = true;
    put(trouble);
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    // While the node does not answer at all, the line at the top says so.
    if (!(state.lost && hasShown)) put(trouble, failure(error, look));
  }
  root.hidden = !hasShown;
}

let timer = null;
let isLooking = false;
let isWanted = false;
let failures = 0;

/** Look again, now: at the cluster, and then at what the page shows. */
async function look() {
  if (isLooking) {
    isWanted = true;
    return;
  }
  isLooking = true;
  clearTimeout(timer);
  const signal = abort.signal;
  try {
    await lookAtCluster();
    failures = 0;
  } catch (error) {
    failures += 1;
    if (!(error instanceof Refused)) throw error;
    if (error.reason !== "TOO_MANY_CONSOLES") state.lost = error.message;
  } finally {
    isLooking = false;
  }
  tellHealth();
  await refresh(signal);
  clearTimeout(timer);
  const patient = Math.min(pollMs * 2 ** Math.min(failures, 3), Math.max(RETRY_MS_MAX, pollMs));
  const wait = isWanted ? 0 : patient;
  isWanted = false;
  // Consoles that were opened together spread out.
  timer = setTimeout(look, document.hidden ? wait * 10 : wait * (0.9 + Math.random() * 0.2));
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});
window.addEventListener("hashchange", open);
open();
