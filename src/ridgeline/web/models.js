// Models: how many replicas each has and why, how they start, which versions there are.

import { curves, drawCurves, ready } from "./history.js";
import {
  $, NONE, bar, cells, clock, count, fillBar, from, made, percent, rows, say, timeText,
} from "./page.js";
import { earlier, fillRollout } from "./rollouts.js";

// Colours of the stages of a start, the same for each replica.
const TONES = { process: 0, starting: 0, import: 1, weights: 2, load: 3, loading: 3, "warm-up": 4 };
const OTHER = 5;

// `s` is the gateway's status, `stored` what the database says (null: not known yet). The server's
// clock is `behind_s` behind ours.

export function models(s, stored, behind_s) {
  const control = s.control || {};
  const going = rolloutsOf(control.rollouts || [], stored?.rollouts || []);
  const managed = control.models || [], names = new Set(managed.map((one) => one.model));
  const others = s.models.filter((one) => !names.has(one.id));
  const found = [
    ...managed.map((one) => ({ name: one.model, control: one })), ...others.map((one) => ({ name: one.id, of: one })),
  ];
  $("no-models").hidden = found.length > 0;
  const shown = new Set();
  rows($("model-cards"), found, () => from("a-model"), (card, { name, control: model, of }) => {
    const part = partsOf(card), there = s.replicas.filter((r) => r.models.includes(name));
    say(part("name"), name);
    if (model) scaled(part, model, s.held?.[name] || 0);
    else running(part, of);
    versions(part, model?.versions || [], going.get(name));
    replicas(part, there, (model?.versions || []).length > 1);
    const decisions = (stored?.decisions || []).filter((one) => one.model === name);
    const points = model ? curves(name, decisions, stored?.since_unix_s ?? null, behind_s) : [];
    part("curves").hidden = !points.some((p) => p.wanted || p.ready || p.demand);
    if (!part("curves").hidden) drawCurves(part, name, points);
    decided(part, decisions, model);
    const last = going.get(name);
    part("rollout").hidden = !last;
    if (!last) return;
    shown.add(last.id);
    fillRollout(part, last, Date.now() / 1000 - behind_s);
  });
  earlier((stored?.rollouts || []).filter((one) => !shown.has(one.id)));
}

const partsOf = (card) => (name) => card.querySelector(`[data-part="${name}"]`);

// The newest rollout of each model. The status is newer than the database's answer.

function rolloutsOf(live, stored) {
  const found = new Map();
  for (const one of [...live, ...stored]) {
    const known = found.get(one.model);
    if (!known || one.began_ns > known.began_ns) found.set(one.model, one);
  }
  return found;
}

function scaled(part, model, held) {
  const { least, most, start_s: start } = model;
  say(part("bounds"), [
    least === most ? `always ${count(least)}` : `${count(least)} to ${count(most)} replicas`,
    start === null ? "no start was seen yet" : `a start takes ${timeText(start)}, its process included`,
  ].join("  ·  "));
  const several = model.versions.filter((one) => one.ready).length;
  const there = `${count(ready(model))} ready${several > 1 ? ` in ${several} versions` : ""}`;
  say(part("wanted"), `${count(model.wanted)} wanted, ${there}`);
  say(part("why"), model.reason || "Nothing is decided yet.");
  say(part("held"), held ? `${count(held)} ${held === 1 ? "request is" : "requests are"} held until one is ready.` : "");
}

function running(part, of) {
  say(part("bounds"), "");
  say(part("wanted"), `${count(of.ready)} of ${count(of.replicas)} ready`);
  say(part("why"), "Servers that run already: nothing here starts or stops them.");
  say(part("held"), "");
}

function versions(part, found, rollout) {
  part("versions").hidden = !found.length;
  rows(part("versions").tBodies[0], found, versionRow, (row, one) => {
    const [name, share, there, leaving] = row.children;
    const role = rollout && !["done", "back"].includes(rollout.phase)
      ? { [rollout.old.id]: "the old one", [rollout.new.id]: "the new one" }[one.id] : "";
    say(name.firstElementChild, one.id);
    say(name.lastElementChild, role || "");
    fillBar(share.firstElementChild, one.share, percent(one.share), { full: 2 });
    say(there, `${count(one.ready)} of ${count(one.replicas)}`);
    say(leaving, one.leaving ? count(one.leaving) : NONE);
  });
}

function versionRow() {
  const row = cells("wrap", "", "n", "n")();
  row.children[0].append(made("code"), made("small"));
  row.children[1].append(bar());
  return row;
}

function replicas(part, found, severalVersions) {
  part("replicas").hidden = !found.length;
  part("no-replica").hidden = found.length > 0;
  const longest = Math.max(...found.map(total), 0);
  rows(part("replicas").tBodies[0], found, startRow, (row, r) => {
    const [state, name, start, inFlight] = row.children, pill = state.firstElementChild;
    pill.dataset.state = r.state;
    pill.title = r.reason;
    say(pill, r.state);
    say(name.firstElementChild, r.id);
    const told = [severalVersions && r.version, r.state !== "ready" && r.reason];
    say(name.lastElementChild, told.filter(Boolean).join("  ·  "));
    stages(start, r, longest);
    say(inFlight, count(r.in_flight));
  });
}

const total = (r) => Object.values(r.stages_s || {}).reduce((a, b) => a + b, 0);

function startRow() {
  const row = cells("", "wrap", "start wrap", "n")();
  row.children[0].append(made("span", "pill"));
  row.children[1].append(made("b"), made("small"));
  row.children[2].append(made("span", "stages"), made("small"));
  return row;
}

// Where its start went: lengths compare with the slowest of the model, words are in their order.

function stages(cell, r, longest) {
  const [track, words] = cell.children, found = Object.entries(r.stages_s || {});
  track.hidden = !longest;
  rows(track, found, () => made("i"), (piece, [stage, spent]) => {
    piece.className = `s${Object.hasOwn(TONES, stage) ? TONES[stage] : OTHER}`;
    piece.style.width = `${(100 * spent) / longest}%`;
    piece.title = `${stage}: ${timeText(spent)}`;
  });
  const each = found.map(([stage, spent]) => `${stage} ${timeText(spent)}`);
  say(words, found.length > 1 ? `${timeText(total(r))}: ${each.join(", ")}` : each.join("") || NONE);
}

function decided(part, found, model) {
  part("decided").hidden = !model;
  part("no-decisions").hidden = found.length > 0;
  part("decisions").hidden = !found.length;
  const today = new Date().toDateString();
  rows(part("decisions").tBodies[0], found, cells("soft", "n", "n wide", "wrap why-so"), (row, one) => {
    const [at, change, demand, reason] = row.children, then = new Date(one.at_unix_s * 1000);
    const day = then.toDateString() === today ? "" : then.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    say(at, `${day} ${clock(one.at_unix_s)}`.trim());
    say(change, `${count(one.before)} → ${count(one.replicas)}`);
    say(demand, count(one.demand));
    say(reason, one.reason);
  });
}
