// The console: once a second the gateway's numbers are fetched and written into the page. What lies
// in the database is asked for only while it is looked at, and seldomer.

import { cost, hours } from "./console/cost.js";
import { saw } from "./console/history.js";
import { models } from "./console/models.js";
import { now, queues, replicas } from "./console/now.js";
import { $, say, since } from "./console/page.js";
import { routing } from "./console/routing.js";
import { tenants } from "./console/tenants.js";
import { close, wanted, why } from "./console/why.js";

const VIEWS = ["now", "models", "tenants", "routing", "cost"];
let view = "now";
let warm = null; // by replica, from the last answer about routing
let last = null; // the gateway's last status
let decided = null; // the last answer about decisions and rollouts
let behind_s = null; // how far the server's clock is behind ours; an old answer makes it more

// One fetch for everything: null where a key is missing, an Error that says why else.

async function fetched(path) {
  const key = sessionStorage.getItem("key");
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(15000) });
  if (answer.status === 401) return locked(key ? "That was not it." : "");
  if (answer.status === 403) return locked("This key may not look here: it needs one of role viewer or admin.");
  if (!answer.ok) throw new Error(await problem(answer));
  $("door").hidden = true;
  $("main").hidden = false;
  return answer.json();
}

async function problem(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The gateway answered with status ${answer.status}.`;
  }
}

function locked(says) {
  $("door").hidden = false;
  $("main").hidden = true;
  say($("door-says"), says);
  sessionStorage.removeItem("key");
  overall("empty", "locked");
  close();
  return null;
}

function overall(state, words) {
  $("overall").dataset.state = state;
  say($("overall"), words);
}

function heading(s) {
  const there = s.replicas.filter((r) => !["draining", "empty", "stopped"].includes(r.state)); // the others leave
  const ready = there.filter((r) => r.state === "ready").length;
  const coming = there.some((r) => ["starting", "loading"].includes(r.state));
  const managed = s.control?.models || [];
  const asleep = managed.length > 0 && managed.every((model) => model.wanted === 0);
  const [state, words] =
    ready === there.length && ready ? ["ready", "serving"]
    : ready ? ["loading", `${ready} of ${there.length} replicas ready`]
    : coming ? ["starting", "starting"]
    : there.length ? ["down", "no replica is ready"]
    : asleep ? ["empty", "asleep until somebody asks"] : ["starting", "starting"];
  overall(state, words);
  say($("version"), s.version);
  say($("uptime"), (s.workers > 1 ? `${s.workers} workers, ` : "") + `up ${since(s.uptime_s)}`);
  say($("curl"), curl(s.models[0]?.id || managed[0]?.model || "MODEL"));
}

function curl(model) {
  const body = { model, messages: [{ role: "user", content: "What is the capital of France?" }] };
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  const key = sessionStorage.getItem("key") ? " \\\n  -H \"authorization: Bearer $RIDGELINE_API_KEY\"" : "";
  return `curl -s ${location.origin}/v1/chat/completions -H 'content-type: application/json'${key} \\\n  -d '${quoted}'`;
}

// What each second asks for: the gateway itself always, the database only for what is looked at.

async function look() {
  let s = null;
  try {
    s = await fetched("console.json");
    document.body.dataset.stale = "no";
  } catch {
    document.body.dataset.stale = "yes";
    overall("down", "no answer from the gateway");
    return;
  }
  if (!s) return;
  last = s;
  heading(s);
  saw(s.control?.models || []);
  if (view === "now") now(s);
  if (view === "models") models(s, decided, behind_s ?? 0);
  if (view === "now" || view === "routing") replicas(s, warm);
  if (view === "now" || view === "tenants") queues(s);
  const asked = wanted();
  if (asked !== null) why(asked, fetched);
}

const STORED = {
  models: async () => show(await fetched("console/models.json"), (found) => {
    decided = found;
    const behind = Date.now() / 1000 - found.now_unix_s;
    behind_s = Math.min(behind_s ?? behind, behind);
    if (last) models(last, decided, behind_s);
  }),
  tenants: async () => show(await fetched("console/tenants.json"), tenants),
  cost: async () => show(await fetched(`console/cost.json?hours=${hours()}`), cost),
  routing: async () => show(await fetched("console/routing.json"), (found) => {
    warm = found.replicas;
    routing(found);
  }),
};
STORED.now = STORED.routing; // how warm replicas are is shown there too

function show(found, write) {
  if (found) write(found);
}

async function lookInStore() {
  try {
    await STORED[view]();
    say($("store-says"), "");
  } catch (error) {
    say($("store-says"), `The ledger could not be read: ${error.message}`);
  }
}

async function repeat(task, every) {
  if (!document.hidden && $("door").hidden) await task();
  setTimeout(repeat, every, task, every);
}

// Views: each card says in which it is shown; the address names the view.

function turn() {
  const named = location.hash.slice(1);
  if (wanted() === null) close();
  if (VIEWS.includes(named) || !named) view = named || "now";
  $("why").dataset.behind = document.body.dataset.view = view;
  for (const card of document.querySelectorAll("[data-views]")) {
    card.hidden = !card.dataset.views.split(" ").includes(view);
  }
  for (const link of $("views").children) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function both() {
  if (!$("door").hidden) return;
  look();
  lookInStore();
}

addEventListener("hashchange", () => { turn(); both(); });
$("cost-hours").addEventListener("change", lookInStore);
$("door").addEventListener("submit", async (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value);
  $("key").value = "";
  await look();
  if ($("door").hidden) lookInStore();
});
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText($("curl").textContent);
  say($("copy"), "Copied");
  setTimeout(() => say($("copy"), "Copy"), 1500);
});
say($("base"), `${location.origin}/v1`);
turn();
repeat(look, 1000);
repeat(lookInStore, 2000);
