// How a model's replicas followed its demand: what was decided is on record, what was there besides
// is known from when this page was opened. What nobody saw stays a gap.

import { draw, steps } from "./charts.js";
import { NONE, count } from "./page.js";

const EVERY_S = 5, POINTS = 180; // a quarter of an hour
const seen = new Map(); // by model, what was there in each slot of time

// Slots are of this page's clock.
const slotOf = (unix) => Math.floor(unix / EVERY_S);
const now = () => slotOf(Date.now() / 1000);
const orNull = (x) => x ?? null;
export const ready = (model) => model.versions.reduce((sum, version) => sum + version.ready, 0);

// To be told each second what there is.

export function saw(models) {
  const slot = now(), names = new Set(models.map((model) => model.model));
  for (const name of seen.keys()) if (!names.has(name)) seen.delete(name);
  for (const model of models) {
    const slots = seen.get(model.model) || seen.set(model.model, new Map()).get(model.model);
    slots.set(slot, { wanted: orNull(model.wanted), ready: ready(model), demand: orNull(model.demand) });
    for (const old of slots.keys()) if (old <= slot - POINTS) slots.delete(old);
  }
}

// `decisions` are the model's, newest first; before `since` some may be missing (null: none is).
// The clock that both are of is `behind_s` behind ours.

export function curves(name, decisions, since, behind_s) {
  const slots = seen.get(name) || new Map(), last = now();
  const decided = [...decisions].reverse().map((one) => ({ ...one, slot: slotOf(one.at_unix_s + behind_s) }));
  const known = since === null ? -Infinity : slotOf(since + behind_s);
  const points = [];
  let next = 0;
  for (let slot = last - POINTS + 1; slot <= last; slot += 1) {
    let demand = null;
    for (; next < decided.length && decided[next].slot <= slot; next += 1) {
      if (decided[next].slot === slot) demand = decided[next].demand;
    }
    const before = next ? decided[next - 1].replicas : decided.length && slot >= known ? decided[0].before : null;
    const there = slots.get(slot);
    points.push({ wanted: there?.wanted ?? before, ready: there?.ready ?? null, demand: there?.demand ?? demand });
  }
  return points;
}

export function drawCurves(part, name, points) {
  draw(part("count"), part("count-at"), points, COUNTS(name));
  draw(part("demand"), part("demand-at"), points, DEMAND(name));
}

const words = (p) => `${count(p.wanted)} wanted, ${p.ready === null ? "ready not seen" : `${count(p.ready)} ready`}`;

const COUNTS = (name) => ({
  every_s: EVERY_S,
  most: (p) => Math.max(p.wanted ?? 0, p.ready ?? 0),
  point: words,
  label: (s) => `Replicas of ${name} over a quarter of an hour: now ${words(s.at(-1))}`,
  paint(svg, series, y) {
    steps(svg, "area solid", series.map((p) => p.ready), y, { filled: true });
    steps(svg, "line", series.map((p) => p.wanted), y);
  },
});

const DEMAND = (name) => ({
  every_s: EVERY_S,
  most: (p) => p.demand ?? 0,
  point: (p) => (p.demand === null ? "not seen" : `${count(p.demand)} requests`),
  label: (s) => `Requests for ${name} over a quarter of an hour: now ${s.at(-1).demand ?? NONE}`,
  paint: (svg, series, y) => {
    steps(svg, "bar", series.map((p) => p.demand), y, { filled: true });
    steps(svg, "line second", series.map((p) => p.demand), y);
  },
});
