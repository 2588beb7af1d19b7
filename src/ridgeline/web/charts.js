// Charts: a row of points in time, with a line where the pointer is, or the arrow keys have put it.

import { count, say, since } from "./page.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600, HEIGHT = 120;
const charts = new WeakMap(); // by its svg

function shape(parent, tag, className, attributes) {
  const node = document.createElementNS(SVG, tag);
  node.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}

function top(most) {
  const size = 10 ** Math.floor(Math.log10(Math.max(most, 2)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * size).find((value) => value >= most);
}

// `told` says what a series is: its highest value at a point, how it is painted, and in words.

export function draw(svg, output, series, told) {
  const high = top(Math.max(...series.map(told.most)));
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.replaceChildren();
  for (const part of [0, 0.5, 1]) {
    const y = HEIGHT * part;
    shape(svg, "line", "grid", { x1: 0, x2: WIDTH, y1: y, y2: y });
  }
  told.paint(svg, series, (value) => HEIGHT - (HEIGHT * value) / high);
  svg.setAttribute("aria-label", told.label(series));
  const chart = charts.get(svg) || pointed(svg);
  Object.assign(chart, { output, series, told, high });
  mark(svg);
}

function pointed(svg) {
  const chart = { at: null };
  const point = (at) => {
    chart.at = at === null ? null : Math.min(chart.series.length - 1, Math.max(0, at));
    mark(svg);
  };
  charts.set(svg, chart);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    point(Math.floor(((event.clientX - box.left) / box.width) * chart.series.length));
  });
  svg.addEventListener("pointerleave", () => point(null));
  svg.addEventListener("blur", () => point(null));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    point((chart.at ?? chart.series.length) + step);
  });
  return chart;
}

function mark(svg) {
  const { output, series, told, high, at } = charts.get(svg);
  svg.querySelector(".cursor")?.remove();
  if (at === null) return say(output, `scale 0 to ${count(high)}`);
  const x = (WIDTH * (at + 0.5)) / series.length;
  shape(svg, "line", "cursor", { x1: x, x2: x, y1: 0, y2: HEIGHT });
  return say(output, `${since((series.length - at) * (told.every_s || 1))} ago: ${told.point(series[at])}`);
}

const most = (s) => Math.max(...s.map((p) => p.total));

export const TOKENS = {
  most: (p) => p.total,
  point: (p) => `${count(p.total)} tokens/s`,
  label: (s) => `Output tokens per second over two minutes: last ${s.at(-1).total}, most ${most(s)}`,
  paint(svg, series, y) {
    const points = series.map((p, at) => `${(WIDTH * (at + 0.5)) / series.length},${y(p.total).toFixed(1)}`);
    const step = WIDTH / series.length / 2;
    shape(svg, "polygon", "area", { points: `${step},${HEIGHT} ${points.join(" ")} ${WIDTH - step},${HEIGHT}` });
    shape(svg, "polyline", "line", { points: points.join(" ") });
  },
};

export const REQUESTS = {
  most: (p) => p.total,
  point: (p) => `${p.total} ended${p.errors ? `, ${p.errors} with an error` : ""}`,
  label: (s) => `Requests ended per second over two minutes: last ${s.at(-1).total}, most ${most(s)}`,
  paint(svg, series, y) {
    const step = WIDTH / series.length;
    series.forEach((p, at) => {
      const bar = { x: at * step + 0.6, width: step - 1.2 };
      const good = y(p.total - p.errors) , all = y(p.total);
      if (p.total > p.errors) shape(svg, "rect", "bar", { ...bar, y: good, height: HEIGHT - good });
      if (p.errors) shape(svg, "rect", "bar bad", { ...bar, y: all, height: good - all });
    });
  },
};

// A value that holds until the next one, as a line or filled; nothing is drawn where it is null.

export function steps(svg, className, values, y, { filled = false } = {}) {
  const width = WIDTH / values.length;
  let path = "", going = false;
  values.forEach((value, at) => {
    const x = (at * width).toFixed(1), end = ((at + 1) * width).toFixed(1);
    if (value === null) {
      if (going && filled) path += `V${HEIGHT}Z`;
      going = false;
      return;
    }
    if (!going) path += filled ? `M${x},${HEIGHT}` : `M${x},${y(value).toFixed(1)}`;
    path += `V${y(value).toFixed(1)}H${end}`;
    going = true;
  });
  if (going && filled) path += `V${HEIGHT}Z`;
  if (path) shape(svg, "path", className, { d: path });
}
