// What requests cost: the hardware's bill, who used it, and what nobody used.

import { $, NONE, cells, count, made, percent, rows, say, short, usd } from "./page.js";

const PARTS = [
  ["floor_usd", "used by requests", "k50"], ["unsettled_usd", "busy, not settled yet", "k-unsettled"],
  ["idle_usd", "idle", "k-idle"], ["loading_usd", "loading", "k-loading"], ["drained_usd", "drained", "k-drained"],
];
const NAMES = [["per_1k_requests", "1,000 requests"], ["per_million_input_tokens", "million tokens in"], ["per_million_output_tokens", "million tokens out"]];

export const hours = () => $("cost-hours").value;

export function cost(c) {
  const bill = Number(c.bill_usd), priced = bill > 0;
  say($("cost-period"), `${c.since} to ${c.until}`);
  tile("cost-bill", priced ? usd(c.bill_usd) : NONE, priced ? `${percent(c.busy_share)} of it busy` : "no replica has a price");
  NAMES.forEach(([name, what], at) => {
    const { actual_usd: actual, floor_usd: floor } = c.whole[name];
    const told = priced && actual !== null && Number(floor) > 0;
    tile(`cost-price-${at}`, told ? usd(actual) : NONE, told ? `floor ${usd(floor)}` : "");
    say($(`cost-price-${at}-what`), `A ${what}`.replace("A 1,000", "1,000"));
  });
  const parts = priced ? PARTS.filter(([key]) => Number(c[key])) : [];
  $("cost-bar").hidden = !priced;
  rows($("cost-bar"), parts, () => made("i"), (part, [key, what, colour]) => {
    part.className = colour;
    part.style.width = `${(100 * Number(c[key])) / bill}%`;
    part.title = `${what}: ${usd(c[key])}`;
  });
  rows($("cost-parts").tBodies[0], priced ? PARTS : [], partRow, (row, [key, what, colour]) => {
    row.children[0].firstElementChild.className = `dot ${colour}`;
    say(row.children[0].lastElementChild, what);
    say(row.children[1], Number(c[key]) > 0 && Number(c[key]) < 0.0001 ? "<$0.0001" : usd(c[key]));
    say(row.children[2], percent(Number(c[key]) / bill));
  });
  lines(c);
  notes(c);
}

function partRow() {
  const row = cells("", "n", "n")();
  row.children[0].append(made("i", "dot"), made("span"));
  return row;
}

function tile(id, value, more) {
  say($(id), value);
  say($(`${id}-more`), more);
}

function lines(c) {
  $("no-cost").hidden = c.lines.length > 0;
  $("cost-lines").hidden = !c.lines.length;
  say($("cost-count"), c.left_out ? `the dearest ${count(c.lines.length)}, ${count(c.left_out)} more are not shown` : "");
  const money = (line, text) => (Number(line.floor_usd) > 0 ? usd(text) : NONE); // no seconds of it on record
  rows($("cost-lines").tBodies[0], c.lines, cells("name wrap", "wrap soft", "n", "n", "n wide", "n", "n", "n", "n", "n", "n wide"), (row, line) => {
    const { actual_usd: actual, floor_usd: floor } = line.per_1k_requests;
    const told = [
      line.tenant, line.model, count(line.requests), short(line.input_tokens), short(line.cached_tokens),
      short(line.output_tokens), usd(line.charged_usd), money(line, line.actual_usd), money(line, actual), money(line, floor),
      money(line, line.per_million_output_tokens.actual_usd),
    ];
    told.forEach((text, at) => say(row.children[at], text));
  });
}

function notes(c) {
  const told = Object.entries(c.step_times).map(([model, source]) => `${model}: busy seconds are shared by ${source}.`);
  if (c.replicas_without_price.length) {
    told.push(`No price (replicas.usd_per_hour in platform.yaml): ${c.replicas_without_price.join(", ")}.`);
  }
  rows($("cost-notes"), told, () => made("p"), (node, text) => say(node, text));
}
