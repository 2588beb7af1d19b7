// What `ridgeline why REQUEST_ID` prints: where a request went, why, and where its time was spent.

import { $, NONE, cells, clock, count, made, rows, say, short, statusClass, statusText, timeText, usd } from "./page.js";

const box = $("why");
let shown = ""; // whose answer the box has, or waits for

export function wanted() {
  const found = /^#why=(.+)$/.exec(location.hash);
  if (!found) return null;
  try {
    return decodeURIComponent(found[1]);
  } catch {
    return null; // a broken address asks for nothing
  }
}

export async function why(id, fetched) {
  if (!box.open) box.showModal();
  if (shown === id) return;
  shown = id;
  say($("why-id"), id);
  say($("why-says"), "Looking …");
  $("why-found").hidden = true;
  let found;
  try {
    found = await fetched(`console/why.json?id=${encodeURIComponent(id)}`);
  } catch (error) {
    if (shown === id) say($("why-says"), error.message);
    return;
  }
  if (shown !== id) return; // somebody clicked on
  if (found === null) return close();
  show(found);
}

export function close() {
  shown = "";
  if (box.open) box.close();
}

function show(w) {
  $("why-found").hidden = false;
  say($("why-id"), w.request_id);
  say($("why-says"), "");
  $("why-status").className = statusClass(w.status);
  say($("why-status"), statusText(w.status));
  say($("why-where"), went(w));
  say($("why-about"), [
    w.endpoint, w.model, `tenant ${w.tenant}`, `class ${w.class}`, w.client_id && `the client calls it ${w.client_id}`,
    `ended ${clock(w.at_unix_s)}`,
  ].filter(Boolean).join("  ·  "));
  $("why-error").hidden = !w.error;
  say($("why-error"), w.error || "");
  const told = Object.entries(w.reasons);
  const charge = w.charge;
  if (charge) {
    told.push(["charged", `${usd(charge.usd)}: ${count(charge.input_tokens)} tokens in (${count(charge.cached_tokens)} cached), ` +
      `${count(charge.output_tokens)} out, by ${charge.basis}`]);
  } else {
    told.push(["charged", "nothing is in the ledger for it"]);
  }
  rows($("why-reasons").tBodies[0], told, cells("soft", "wrap"), (row, [what, reason]) => {
    say(row.children[0], what);
    say(row.children[1], reason);
  });
  split(w.split_s);
  rows($("why-attempts"), w.decisions, attemptTable, (node, one) => attempt(node, one, w.decisions.indexOf(one) + 1));
}

function went(w) {
  if (!w.replica) return "went nowhere";
  const again = w.retries ? ` after ${w.decisions.length} attempts` : "";
  const on = w.resumed ? ", where its stream went on when its first replica was gone" : "";
  return `went to ${w.replica}${again}${on}`;
}

function split(parts) {
  const total = Object.values(parts).reduce((a, b) => a + b, 0);
  let before = 0;
  const placed = Object.entries(parts).map(([part, spent]) => [part, spent, (before += spent) - spent]);
  rows($("why-split").tBodies[0], placed, () => {
    const row = cells("soft", "n", "span")();
    const track = made("div", "spread");
    track.append(made("i", "k50"));
    row.children[2].append(track);
    return row;
  }, (row, [part, spent, from]) => {
    say(row.children[0], part);
    say(row.children[1], timeText(spent));
    const bar = row.children[2].firstElementChild.firstElementChild;
    bar.style.left = total ? `${(100 * from) / total}%` : "0";
    bar.style.width = total ? `max(2px, ${(100 * spent) / total}%)` : "0";
  });
  say($("why-total"), total ? `${timeText(total)} in all` : NONE);
}

function attemptTable() {
  const node = made("section"), scroll = made("div", "scroll"), table = made("table", "stacks");
  const head = table.createTHead().insertRow();
  ["Replica", "Requests", "Waiting tokens", "Warm", "To compute", "Cost"].forEach((name, at) => {
    const cell = made("th", at ? "n" : "", name);
    cell.scope = "col";
    head.append(cell);
  });
  table.createTBody();
  scroll.append(table);
  node.append(made("h3"), made("p", "quiet"), scroll);
  return node;
}

function attempt(node, { view, route }, number) {
  const [title, reason, scroll] = node.children;
  say(title, `Attempt ${number}, ${view.rule}`);
  say(reason, route.reason);
  rows(scroll.firstElementChild.tBodies[0], route.scores, cells("name wrap", "n", "n", "n", "n", "n"), (row, score) => {
    const chosen = score.replica === route.replica;
    row.classList.toggle("chosen", chosen);
    const told = [
      (chosen ? "▸ " : "") + score.replica, count(score.load), short(score.backlog_tokens), short(score.warm_tokens),
      short(score.uncached_tokens), count(score.cost),
    ];
    told.forEach((text, at) => say(row.children[at], text));
  });
}

box.addEventListener("close", () => {
  shown = "";
  if (wanted() !== null) history.replaceState(null, "", `#${box.dataset.behind || "now"}`);
});
$("why-close").addEventListener("click", () => box.close());
