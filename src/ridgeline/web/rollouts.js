// A rollout: where it is, from what to what, and what its gate has seen.

import { $, NONE, cells, clock, count, fillBar, made, roundPercent, rows, say, since } from "./page.js";

const LOOKS = { checking: "starting", canary: "loading", keeping: "ready", done: "ready", back: "down" };
const WORDS = { checking: "checking it", keeping: "all requests, the old version stays warm", done: "done", back: "went back" };
const WISHES = { promote: "An operator asked for all requests to go to it.", abort: "An operator asked for it to go back." };
const OVER = ["done", "back"];
const times = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

const share = (r) => roundPercent(r.steps[r.step]);
const phase = (r) => (r.phase === "canary" ? `${share(r)} of requests` : WORDS[r.phase] || r.phase);
const seconds = (ns) => ns / 1e9;

export function fillRollout(part, r, now) {
  const pill = part("phase"), over = OVER.includes(r.phase);
  say(part("rollout-id"), r.id);
  pill.dataset.state = LOOKS[r.phase] || "empty";
  say(pill, phase(r));
  const age = since(Math.max(0, now - seconds(r.since_ns)));
  say(part("rollout-age"), `${over ? `${age} ago` : `for ${age}`}; began ${clock(seconds(r.began_ns))}`);
  say(part("rollout-why"), r.reason);
  say(part("wish"), over ? "" : WISHES[r.wish] || "");
  way(part("way"), r);
  differences(part, r);
  evidence(part, r);
  say(part("rollout-next"), over ? "" : ["promote", "abort"].map((verb) => command(verb, r.model)).join("\n"));
}

// Checking, each step of the canary, keeping, done: what lies behind it, and where it is.

function way(list, r) {
  const back = r.phase === "back", canary = r.steps.map(roundPercent);
  const stations = ["checking", ...canary, ...(back ? ["went back"] : ["old one warm", "done"])];
  const at = { checking: 0, canary: 1 + r.step, keeping: canary.length + 1, done: canary.length + 2, back: canary.length + 1 }[r.phase] ?? -1;
  rows(list, stations, () => made("li"), (item, name) => {
    const place = [...list.children].indexOf(item), here = place === at;
    item.className = here ? (back ? "here bad" : "here") : place < at && !back ? "past" : "";
    if (here) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
    say(item, name);
  });
}

// Settings that differ. Of an environment only the names: its values are nobody's business here.

function differences(part, r) {
  const settings = [["model", r.old.model, r.new.model]];
  const both = new Set([...Object.keys(r.old.engine), ...Object.keys(r.new.engine)]);
  for (const name of [...both].sort()) settings.push([name, r.old.engine[name], r.new.engine[name]]);
  const differ = settings.filter(([, before, after]) => JSON.stringify(before) !== JSON.stringify(after));
  say(part("old-version"), `old: ${r.old.id}`);
  say(part("new-version"), `new: ${r.new.id}`);
  rows(part("differences").tBodies[0], differ, cells("name wrap", "wrap", "wrap"), (row, [name, ...values]) => {
    say(row.children[0], name);
    values.forEach((value, at) => say(row.children[at + 1], setting(name, value)));
  });
}

function setting(name, value) {
  if (value === undefined || value === null) return NONE;
  if (typeof value !== "object") return String(value);
  return name.startsWith("env") && !Array.isArray(value) ? Object.keys(value).join(", ") || NONE : JSON.stringify(value);
}

function evidence(part, r) {
  const { planned, gates = [], requests } = r.evidence;
  const some = planned !== undefined;
  part("evidence").hidden = !some;
  say(part("no-evidence"), some ? "" : r.phase === "checking"
    ? "The new version starts, and its answers are compared with its reference. No request goes to it yet."
    : "No request went to the new version.");
  if (!some) return;
  const seen = requests || { old: 0, new: 0 };
  fillBar(part("planned"), planned ? seen.new / planned : null, `${count(seen.new)} of ${count(planned)} planned`, { full: 2 });
  say(part("beside"), `requests of the new version in this step, beside ${count(seen.old)} of the old one`);
  rows(part("gates").tBodies[0], gates, gateRow, (row, gate) => {
    const [name, ratio, verdict, reason] = row.children, mark = verdict.firstElementChild;
    say(name, gate.name);
    say(ratio, gate.ratio === null ? NONE : `${times.format(gate.ratio)} ×`);
    const unknown = gate.ratio === null && !gate.is_worse && !(gate.name === "errors" && seen.new && seen.old);
    mark.className = gate.is_worse ? "status server" : unknown ? "status left" : "status";
    say(mark, gate.is_worse ? "worse" : unknown ? "not known" : "no worse");
    say(reason, gate.reason);
  });
}

function gateRow() {
  const row = cells("name", "n", "", "wrap why-so")();
  row.children[2].append(made("span", "status"));
  return row;
}

// To be pasted into a shell: a name that is more than letters is quoted.

function command(verb, model) {
  const quoted = /^[\w.@:/+-]+$/.test(model) ? model : `'${model.replaceAll("'", "'\\''")}'`;
  return `ridgeline rollout ${verb} ${quoted} platform.yaml`;
}

export function earlier(found) {
  $("earlier-card").dataset.empty = found.length ? "no" : "yes";
  rows($("earlier").tBodies[0], found, earlierRow, (row, r) => {
    const [began, model, versions, end, reason] = row.children, pill = end.firstElementChild;
    say(began, new Date(seconds(r.began_ns) * 1000).toLocaleString("en-GB", { dateStyle: "short", timeStyle: "short" }));
    say(model, r.model);
    say(versions, `${r.old.id} → ${r.new.id}`);
    pill.dataset.state = LOOKS[r.phase] || "empty";
    say(pill, phase(r));
    say(reason, r.reason);
  });
}

function earlierRow() {
  const row = cells("soft", "name", "wide", "", "wrap why-so")();
  row.children[3].append(made("span", "pill"));
  return row;
}
