// What happens now: tiles, charts, replicas, queues, latency, the last requests and errors.

import { REQUESTS, TOKENS, draw } from "./charts.js";
import {
  $, NONE, bar, cells, clock, count, fillBar, made, percent, rate, roundPercent, rows, say, short,
  statusClass, statusText, time, timeText, toWhy, whyLink,
} from "./page.js";

export function now(s) {
  tiles(s);
  const { requests, output_tokens: tokens, errors: failed } = s.rates.series;
  draw($("tokens-chart"), $("tokens-at"), tokens.map((total) => ({ total })), TOKENS);
  const ended = requests.map((total, at) => ({ total, errors: failed[at] }));
  draw($("requests-chart"), $("requests-at"), ended, REQUESTS);
  latency(s);
  recent(s);
  errors(s);
}

function tiles(s) {
  const { rates, latency: of } = s;
  say($("tokens-rate"), rate(rates.output_tokens_per_s));
  say($("tokens-more"), `${short(s.output_tokens)} since the start`);
  say($("requests-rate"), rate(rates.requests_per_s));
  say($("requests-more"), `${short(s.requests)} since the start`);
  say($("in-flight"), count(s.in_flight));
  const queued = (s.queues || []).reduce((sum, row) => sum + row.queued, 0);
  const waiting = s.replicas.reduce((sum, r) => sum + (r.waiting || 0), 0);
  const held = Object.values(s.held || {}).reduce((sum, of) => sum + of, 0);
  const parts = [
    held && `${count(held)} held for a replica`, queued && `${count(queued)} queue`, waiting && `${count(waiting)} wait in replicas`,
  ];
  say($("in-flight-more"), parts.filter(Boolean).join(", ") || "none waits");
  for (const name of ["ttft", "tpot"]) {
    const [value, unit] = time(of[name].p50);
    say($(name), value);
    say($(`${name}-unit`), of[name].count ? `${unit} p50` : "");
    say($(`${name}-more`), of[name].count ? `${timeText(of[name].p99)} p99` : "no streams yet");
  }
  const failed = rates.series.errors.reduce((a, b) => a + b, 0);
  const all = rates.series.requests.reduce((a, b) => a + b, 0);
  say($("errors-rate"), count(failed));
  say($("errors-more"), all ? `${percent(failed / all)} of ${count(all)} requests` : "no requests");
  $("errors-tile").dataset.bad = failed ? "yes" : "no";
}

// Replicas as this second sees them; `warm` is by replica what the database says, or null.

export function replicas(s, warm) {
  $("no-replicas").hidden = s.replicas.length > 0;
  rows($("models"), s.models, () => {
    const chip = made("span", "model");
    chip.append(made("b"), made("span"));
    return chip;
  }, (chip, model) => {
    say(chip.children[0], model.id);
    say(chip.children[1], `  ${model.ready} of ${model.replicas} ready, ${model.routing}`);
  });
  rows($("replicas").tBodies[0], s.replicas, replicaRow, (row, r) => replica(row, r, warm));
}

function replicaRow() {
  const row = cells("", "name wrap", "wide soft cut", "wide cut", "meter", "n", "n wide", "meter", "n", "n wide", "n wide vast")();
  row.children[0].append(made("span", "pill"));
  row.children[4].append(bar());
  row.children[7].append(bar());
  return row;
}

function replica(row, r, warm) {
  const [state, name, address, model, inFlight, prefilling, waiting, usage, hit, cached, requests] = row.children;
  const pill = state.firstElementChild;
  pill.dataset.state = r.state;
  say(pill, r.state);
  pill.title = r.reason;
  say(name, r.id);
  say(address, r.state === "ready" ? r.address : r.reason);
  address.title = `${r.address}: ${r.reason}`;
  say(model, r.models.join(", ") || NONE);
  model.title = model.textContent;
  const slots = ["starting", "loading"].includes(r.state) ? null : r.slots; // not known yet
  const of = slots ? r.in_flight / slots : null;
  fillBar(inFlight.firstElementChild, of, slots ? `${count(r.in_flight)} of ${count(slots)}` : count(r.in_flight));
  say(prefilling, short(r.prefilling_tokens));
  say(waiting, count(r.waiting));
  fillBar(usage.firstElementChild, r.kv_usage, roundPercent(r.kv_usage));
  const known = warm ? warm[r.id] : null;
  say(hit, roundPercent(known?.warm_share));
  hit.title = known?.decisions ? `believed when it was chosen: ${count(known.decisions)} decisions` : "";
  say(cached, roundPercent(known?.cached_share));
  say(requests, short(r.requests));
}

export function queues(s) {
  const order = ["system", "interactive", "default", "bulk"];
  const found = [...(s.queues || [])].sort((a, b) =>
    b.oldest_wait_s - a.oldest_wait_s || order.indexOf(a.class) - order.indexOf(b.class) ||
    a.model.localeCompare(b.model) || a.tenant.localeCompare(b.tenant));
  $("no-queues").hidden = found.length > 0;
  $("queues").hidden = !found.length;
  const queued = found.reduce((sum, row) => sum + row.queued, 0);
  const running = found.reduce((sum, row) => sum + row.running, 0);
  say($("queues-count"), found.length ? `${count(queued)} wait, ${count(running)} run` : "");
  rows($("queues").tBodies[0], found, cells("name wrap", "soft", "wrap soft wide", "n", "n", "n"), (row, q) => {
    const [tenant, of, model, waits, runs, oldest] = row.children;
    say(tenant, q.tenant);
    say(of, q.class);
    say(model, q.model);
    say(waits, count(q.queued));
    say(runs, count(q.running));
    say(oldest, q.queued ? timeText(q.oldest_wait_s) : NONE);
  });
}

function latency(s) {
  const named = [["First token", s.latency.ttft], ["Each further token", s.latency.tpot], ["Whole answer", s.latency.e2e]];
  say($("latency-window"), `${count(s.latency.e2e.count)} answers in ${s.latency.window_s / 60} min`);
  rows($("latency").tBodies[0], named, () => {
    const row = made("tr"), head = made("th");
    head.scope = "row";
    row.append(head, made("td", "n"), made("td", "n"), made("td", "n"), made("td", "span"));
    const spread = made("div", "spread");
    spread.append(made("i", "k99"), made("i", "k90"), made("i", "k50"));
    row.children[4].append(spread);
    return row;
  }, (row, [name, found]) => {
    say(row.children[0], name);
    ["p50", "p90", "p99"].forEach((rank, at) => say(row.children[at + 1], timeText(found[rank])));
    ["p99", "p90", "p50"].forEach((rank, at) => {
      const share = found.p99 ? found[rank] / found.p99 : 0;
      row.children[4].firstElementChild.children[at].style.width = `${share * 100}%`;
    });
  });
}

const ended = (r) => r.at_unix_s + r.e2e_s;
const byEnd = (found) => [...found].sort((a, b) => ended(b) - ended(a));

function recent(s) {
  $("no-requests").hidden = s.recent.length > 0;
  $("recent").hidden = s.recent.length === 0;
  say($("recent-count"), s.recent.length ? `the last ${s.recent.length}; click one to see why it went where it went` : "");
  rows($("recent").tBodies[0], byEnd(s.recent), () => {
    const row = cells("soft", "", "wrap", "wrap whole", "n", "n wide", "n", "n wide", "n")();
    row.children[0].append(whyLink());
    row.children[1].append(made("span", "status"));
    row.children[3].append(made("span"), made("small"));
    return row;
  }, (row, r) => {
    const [at, status, tenant, model, ttft, tpot, total, prompt, output] = row.children;
    toWhy(at.firstElementChild, r.id, clock(ended(r)));
    row.title = r.error || "";
    say(status.firstElementChild, statusText(r.status));
    status.firstElementChild.className = statusClass(r.status);
    say(tenant, r.tenant || NONE);
    say(model.children[0], r.model || NONE);
    say(model.children[1], (r.replica || NONE) + (r.retries ? ` (${r.retries} retried)` : ""));
    say(ttft, timeText(r.ttft_s));
    say(tpot, timeText(r.tpot_s));
    say(total, timeText(r.e2e_s));
    say(prompt, count(r.prompt_tokens));
    say(output, count(r.output_tokens));
  });
}

function errors(s) {
  $("no-errors").hidden = s.errors.length > 0;
  rows($("errors"), byEnd(s.errors), () => {
    const item = made("li");
    item.append(made("span", "status"), made("span", "quiet"), made("span", "what"));
    return item;
  }, (item, e) => {
    const [status, where, what] = item.children;
    status.className = statusClass(e.status);
    say(status, statusText(e.status));
    const there = [clock(ended(e)), e.tenant, e.model, e.replica].filter(Boolean);
    say(where, `  ${there.join("  ·  ")}`);
    say(what, e.error || "no message");
  });
}
