// The last routing decisions, with what each knew of the replicas.

import { $, clock, count, made, rows, say, short, statusClass, statusText, timeText, toWhy, whyLink } from "./page.js";

export function routing(found) {
  const some = found.decisions.length > 0;
  $("no-decisions").hidden = some;
  $("decisions").hidden = !some;
  say($("decisions-count"), some ? `the last ${found.decisions.length} of all workers` : "");
  rows($("decisions"), found.decisions, decisionItem, decision);
}

function decisionItem() {
  const item = made("li"), head = made("div", "line");
  head.append(whyLink(), made("span", "status"), made("b"), made("span", "quiet"));
  item.append(head, made("p", "reason"), made("div", "scores"));
  return item;
}

function decision(item, d) {
  const [head, reason, scores] = item.children, [at, status, replica, about] = head.children;
  toWhy(at, d.request_id, clock(d.at_unix_s));
  status.className = statusClass(d.status);
  say(status, statusText(d.status));
  say(replica, d.replica);
  const again = d.attempts > 1 ? `attempt ${d.attempts}` : "";
  say(about, [d.tenant, d.model, d.rule, `${short(d.input_tokens)} tokens in`, timeText(d.e2e_s), again].filter(Boolean).join("  ·  "));
  say(reason, d.reason);
  const left = d.candidates - d.scores.length;
  rows(scores, left ? [...d.scores, null] : d.scores, () => made("span", "score"), (chip, score) => {
    chip.classList.toggle("chosen", score?.replica === d.replica);
    say(chip, score === null ? `${count(left)} more`
      : `${score.replica}: ${count(score.load)} there, ${short(score.backlog_tokens)} wait, ${short(score.warm_tokens)} warm, cost ${short(score.cost)}`);
    chip.title = score === null ? "dearer ones" : `requests there ${score.load}; prompt tokens that wait there ` +
      `${score.backlog_tokens}; of this prompt ${score.warm_tokens} believed cached, ${score.uncached_tokens} to compute`;
  });
}
