// Tenants: what they used today, how full their limits are, and what budget is left.

import {
  $, NONE, bar, cells, clock, count, fillBar, made, rows, say, short, tight, usd,
} from "./page.js";

const LIMITS = {
  requests_per_minute: ["requests", "/min"],
  input_tokens_per_minute: ["tokens in", "/min"],
  output_tokens_per_minute: ["tokens out", "/min"],
  concurrent: ["at once", ""],
};
let last = null; // so that a filter shows at once

const fullness = (fill) => (fill.used + fill.held) / fill.limit;
const spent = (b) => 1 - Number(b.left_usd) / Number(b.usd);
const fullest = (t) => Math.max(0, ...t.limits.map(fullness), t.budget ? spent(t.budget) : 0);
const tokens = (t) => t.input_tokens + t.output_tokens;

const ORDERS = {
  use: (a, b) => Number(b.charged_usd) - Number(a.charged_usd) || tokens(b) - tokens(a),
  full: (a, b) => fullest(b) - fullest(a),
  name: () => 0,
};

export function tenants(found) {
  last = found;
  const wanted = $("tenants-find").value.trim().toLowerCase();
  const named = found.tenants.filter((t) => t.name.toLowerCase().includes(wanted));
  const order = ORDERS[$("tenants-order").value];
  named.sort((a, b) => order(a, b) || a.name.localeCompare(b.name));
  const more = found.left_out ? `, ${count(found.left_out)} more are not shown` : "";
  say($("tenants-count"), `${count(named.length)} of ${count(found.tenants.length)}${more}; today since 00:00 UTC`);
  $("no-tenants").hidden = found.tenants.length > 0;
  rows($("tenants").tBodies[0], named, tenantRow, tenant);
}

for (const [id, event] of [["tenants-find", "input"], ["tenants-order", "change"]]) {
  $(id).addEventListener(event, () => last && tenants(last));
}

function tenantRow() {
  const row = cells("wrap", "n", "n", "n", "n wide", "n", "n", "limits", "budget")();
  row.children[0].append(made("b"), made("small"));
  row.children[7].append(made("div"), made("span"));
  row.children[8].append(bar(), made("small"));
  return row;
}

function tenant(row, t) {
  const [name, running, requests, prompt, cached, output, charged, limits, budget] = row.children;
  row.classList.toggle("off", t.disabled);
  say(name.children[0], t.name);
  const told = t.priority_class ? `${t.priority_class}, weight ${t.weight}` : "not on record as a tenant";
  say(name.children[1], t.disabled ? `disabled · ${told}` : told);
  say(running, count(t.running));
  say(requests, count(t.requests));
  say(prompt, short(t.input_tokens));
  say(cached, short(t.cached_tokens));
  say(output, short(t.output_tokens));
  say(charged, usd(t.charged_usd));
  rows(limits.children[0], t.limits, bar, limit);
  say(limits.children[1], t.limits.length ? "" : NONE);
  budgetLeft(budget, t.budget);
}

function limit(node, fill) {
  const [what, per] = LIMITS[fill.name];
  fillBar(node, fill.used / fill.limit, `${tight(fill.used + fill.held)} of ${tight(fill.limit)} ${what}${per}`, {
    held: fill.held / fill.limit,
  });
  const held = fill.held ? `, ${count(fill.held)} held by running requests` : "";
  node.title = `${what}: ${count(fill.used)} used${fill.name === "concurrent" ? " now" : " in the last minute"}${held}, of ${count(fill.limit)}`;
}

function budgetLeft(cell, b) {
  const [node, more] = cell.children;
  node.hidden = !b;
  say(more, b ? `left of ${usd(b.usd)} a ${b.per}` : NONE);
  if (!b) return;
  const whole = Number(b.usd);
  fillBar(node, Number(b.spent_usd) / whole, usd(b.left_usd), { held: Number(b.held_usd) / whole });
  const ends = new Date(b.ends_unix_s * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  node.title = `${usd(b.spent_usd)} spent, ${usd(b.held_usd)} held by running requests; ` +
    `begins anew ${ends} ${clock(b.ends_unix_s)} (${b.timezone}'s ${b.per}, your clock)`;
}
