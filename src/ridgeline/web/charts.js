// Charts: 120 bars or points, one a second, with a line where the pointer is.

import { $, count, say } from "./page.js";

const SVG = "http://www.w3.org/2000/svg";
const charts = new Map();

const WIDTH = 600, HEIGHT = 120;

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

export function draw(id, series, told) {
  const svg = $(id), most = Math.max(...series.map((point) => point.total)), high = top(most);
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.replaceChildren();
  for (const part of [0, 0.5, 1]) {
    const y = HEIGHT * part;
    shape(svg, "line", "grid", { x1: 0, x2: WIDTH, y1: y, y2: y });
  }
  told.paint(svg, series, (value) => HEIGHT - (HEIGHT * value) / high);
  svg.setAttribute("aria-label", told.label(series, most));
  const chart = charts.get(id) || hover(id);
  Object.assign(chart, { series, told, high });
  mark(id);
}

function hover(id) {
  const chart = { at: null };
  charts.set(id, chart);
  $(id).addEventListener("pointermove", (event) => {
    const box = $(id).getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    chart.at = Math.min(chart.series.length - 1, Math.max(0, Math.floor(share * chart.series.length)));
    mark(id);
  });
  $(id).addEventListener("pointerleave", () => { chart.at = null; mark(id); });
  return chart;
}

function mark(id) {
  const { series, told, high, at } = charts.get(id), svg = $(id);
  svg.querySelector(".cursor")?.remove();
  const output = $(told.output);
  if (at === null) return say(output, `scale 0 to ${count(high)}`);
  const x = (WIDTH * (at + 0.5)) / series.length;
  shape(svg, "line", "cursor", { x1: x, x2: x, y1: 0, y2: HEIGHT });
  return say(output, `${series.length - at} s ago: ${told.point(series[at])}`);
}

export const TOKENS = {
  output: "tokens-at",
  point: (p) => `${count(p.total)} tokens/s`,
  label: (s, most) => `Output tokens per second over two minutes: last ${s.at(-1).total}, most ${most}`,
  paint(svg, series, y) {
    const points = series.map((p, at) => `${(WIDTH * (at + 0.5)) / series.length},${y(p.total).toFixed(1)}`);
    const step = WIDTH / series.length / 2;
    shape(svg, "polygon", "area", { points: `${step},${HEIGHT} ${points.join(" ")} ${WIDTH - step},${HEIGHT}` });
    shape(svg, "polyline", "line", { points: points.join(" ") });
  },
};

export const REQUESTS = {
  output: "requests-at",
  point: (p) => `${p.total} ended${p.errors ? `, ${p.errors} with an error` : ""}`,
  label: (s, most) => `Requests ended per second over two minutes: last ${s.at(-1).total}, most ${most}`,
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
