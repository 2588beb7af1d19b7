// The console: once a second the gateway's numbers are fetched and written into the page.
// Names come from outside, so text is only ever set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const charts = new Map();

// Numbers as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const count = (x) => (x === null || x === undefined ? "–" : whole.format(x));
const rate = (x) => (x >= 100 || x === 0 ? whole.format(x) : one.format(x));
const short = (x) =>
  x >= 1e9 ? `${one.format(x / 1e9)}G` : x >= 1e6 ? `${one.format(x / 1e6)}M` : whole.format(x);
const percent = (share) => `${one.format(share * 100)} %`;

function time(s) {
  if (s === null || s === undefined) return ["–", ""];
  if (s < 0.1) return [(s * 1000).toFixed(1), "ms"];
  if (s < 1) return [(s * 1000).toFixed(0), "ms"];
  return [s < 100 ? s.toFixed(2) : s.toFixed(0), "s"];
}
const timeText = (s) => time(s).join(" ").trim();

function since(s) {
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${Math.floor(s) % 60} s` : `${Math.floor(s)} s`;
}
const clock = (unix) => new Date(unix * 1000).toLocaleTimeString("en-GB");

// The page: what is there is changed, not made anew, so that a selection survives.

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function made(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function rows(body, items, make, fill) {
  while (body.children.length > items.length) body.lastElementChild.remove();
  items.forEach((item, at) => {
    const row = body.children[at] || body.appendChild(make());
    fill(row, item);
  });
}

const cells = (...classes) => () => {
  const row = made("tr");
  classes.forEach((name) => row.append(made("td", name)));
  return row;
};

// Charts: 120 bars or points, one a second, with a line where the pointer is.

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

function draw(id, series, told) {
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
  if (at === null) return say(output, `scale 0 to ${whole.format(high)}`);
  const x = (WIDTH * (at + 0.5)) / series.length;
  shape(svg, "line", "cursor", { x1: x, x2: x, y1: 0, y2: HEIGHT });
  return say(output, `${series.length - at} s ago: ${told.point(series[at])}`);
}

const TOKENS = {
  output: "tokens-at",
  point: (p) => `${whole.format(p.total)} tokens/s`,
  label: (s, most) => `Output tokens per second over two minutes: last ${s.at(-1).total}, most ${most}`,
  paint(svg, series, y) {
    const points = series.map((p, at) => `${(WIDTH * (at + 0.5)) / series.length},${y(p.total).toFixed(1)}`);
    const step = WIDTH / series.length / 2;
    shape(svg, "polygon", "area", { points: `${step},${HEIGHT} ${points.join(" ")} ${WIDTH - step},${HEIGHT}` });
    shape(svg, "polyline", "line", { points: points.join(" ") });
  },
};

const REQUESTS = {
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

// Sections.

function tiles(s) {
  const { rates, latency } = s;
  say($("tokens-rate"), rate(rates.output_tokens_per_s));
  say($("tokens-more"), `${short(s.output_tokens)} since the start`);
  say($("requests-rate"), rate(rates.requests_per_s));
  say($("requests-more"), `${short(s.requests)} since the start`);
  say($("in-flight"), count(s.in_flight));
  const waiting = s.replicas.reduce((sum, r) => sum + (r.waiting || 0), 0);
  say($("in-flight-more"), waiting ? `${count(waiting)} wait in replicas` : "none waits in a replica");
  for (const name of ["ttft", "tpot"]) {
    const [value, unit] = time(latency[name].p50);
    say($(name), value);
    say($(`${name}-unit`), latency[name].count ? `${unit} p50` : "");
    say($(`${name}-more`), latency[name].count ? `${timeText(latency[name].p99)} p99` : "no streams yet");
  }
  const errors = rates.series.errors.reduce((a, b) => a + b, 0);
  const ended = rates.series.requests.reduce((a, b) => a + b, 0);
  say($("errors-rate"), count(errors));
  say($("errors-more"), ended ? `${percent(errors / ended)} of ${count(ended)} requests` : "no requests");
  $("errors-tile").dataset.bad = errors ? "yes" : "no";
}

function replicas(s) {
  $("no-replicas").hidden = s.replicas.length > 0;
  rows($("models"), s.models, () => {
    const chip = made("span", "model");
    chip.append(made("b"), made("span"));
    return chip;
  }, (chip, model) => {
    say(chip.children[0], model.id);
    say(chip.children[1], `  ${model.ready} of ${model.replicas} ready, ${model.routing}`);
  });
  rows($("replicas").tBodies[0], s.replicas, () => {
    const row = cells("", "name cut", "wide soft cut", "wide cut", "n", "n", "", "n wide vast")();
    row.children[0].append(made("span", "pill"));
    const usage = made("span", "usage"), track = made("span", "track");
    track.append(made("div", "fill"));
    usage.append(track, made("span"));
    row.children[6].append(usage);
    return row;
  }, (row, r) => {
    const [state, name, address, model, inFlight, waiting, usage, requests] = row.children;
    const pill = state.firstElementChild;
    pill.dataset.state = r.state;
    say(pill, r.state);
    pill.title = r.reason;
    say(name, r.id);
    say(address, r.state === "ready" ? r.address : r.reason);
    address.title = `${r.address}: ${r.reason}`;
    say(model, r.models.join(", ") || "–");
    model.title = model.textContent;
    say(inFlight, count(r.in_flight));
    say(waiting, count(r.waiting));
    kvUsage(usage.firstElementChild, r.kv_usage);
    say(requests, count(r.requests));
  });
}

function kvUsage(node, share) {
  const [track, label] = node.children, known = share !== null;
  track.hidden = !known;
  say(label, known ? `${whole.format(share * 100)} %` : "–");
  if (!known) return;
  track.firstElementChild.style.width = `${share * 100}%`;
  track.firstElementChild.classList.toggle("full", share >= 0.95);
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

function statusClass(status) {
  if (status === 499) return "status left";
  return status >= 500 ? "status server" : status >= 400 ? "status client" : "status";
}

function recent(s) {
  $("no-requests").hidden = s.recent.length > 0;
  $("recent").hidden = s.recent.length === 0;
  say($("recent-count"), s.recent.length ? `the last ${s.recent.length}` : "");
  rows($("recent").tBodies[0], s.recent, () => {
    const row = cells("soft", "", "name cut", "wide soft cut", "n", "n wide", "n", "n wide", "n")();
    row.children[1].append(made("span", "status"));
    return row;
  }, (row, r) => {
    const [at, status, model, replica, ttft, tpot, total, prompt, output] = row.children;
    say(at, clock(r.at_unix_s + r.e2e_s));
    row.title = r.error || r.id;
    say(status.firstElementChild, r.status === 499 ? "left" : String(r.status));
    status.firstElementChild.className = statusClass(r.status);
    say(model, r.model || "–");
    say(replica, (r.replica || "–") + (r.retries ? ` (${r.retries} retried)` : ""));
    say(ttft, timeText(r.ttft_s));
    say(tpot, timeText(r.tpot_s));
    say(total, timeText(r.e2e_s));
    say(prompt, count(r.prompt_tokens));
    say(output, count(r.output_tokens));
  });
}

function errors(s) {
  $("no-errors").hidden = s.errors.length > 0;
  rows($("errors"), s.errors, () => {
    const item = made("li");
    item.append(made("span", "status"), made("span", "quiet"), made("span", "what"));
    return item;
  }, (item, e) => {
    const [status, where, what] = item.children;
    status.className = statusClass(e.status);
    say(status, String(e.status));
    const there = [clock(e.at_unix_s + e.e2e_s), e.model, e.replica].filter(Boolean);
    say(where, `  ${there.join("  ·  ")}`);
    say(what, e.error || "no message");
  });
}

function heading(s) {
  const ready = s.replicas.filter((r) => r.state === "ready").length;
  const [state, words] =
    ready === s.replicas.length && ready ? ["ready", "serving"]
    : ready ? ["starting", `${ready} of ${s.replicas.length} replicas ready`]
    : s.replicas.some((r) => r.state === "starting") || !s.replicas.length ? ["starting", "starting"]
    : ["down", "no replica is ready"];
  overall(state, words);
  say($("version"), s.version);
  say($("uptime"), `up ${since(s.uptime_s)}`);
  say($("curl"), curl(s.models[0]?.id || "MODEL"));
}

function overall(state, words) {
  $("overall").dataset.state = state;
  say($("overall"), words);
}

function curl(model) {
  const body = { model, messages: [{ role: "user", content: "What is the capital of France?" }] };
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  const key = sessionStorage.getItem("key") ? " \\\n  -H \"authorization: Bearer $RIDGELINE_API_KEY\"" : "";
  return `curl -s ${location.origin}/v1/chat/completions -H 'content-type: application/json'${key} \\\n  -d '${quoted}'`;
}

function show(s) {
  heading(s);
  tiles(s);
  const { requests, output_tokens: tokens, errors: failed } = s.rates.series;
  draw("tokens-chart", tokens.map((total) => ({ total })), TOKENS);
  draw("requests-chart", requests.map((total, at) => ({ total, errors: failed[at] })), REQUESTS);
  replicas(s);
  latency(s);
  recent(s);
  errors(s);
}

// The loop: a second after each answer; nothing while nobody looks.

async function fetched() {
  const key = sessionStorage.getItem("key");
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const answer = await fetch("console.json", { headers, signal: AbortSignal.timeout(5000) });
  if (answer.status === 401) return locked(key);
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  $("door").hidden = true;
  $("main").hidden = false;
  return answer.json();
}

function locked(key) {
  $("door").hidden = false;
  $("main").hidden = true;
  say($("door-says"), key ? "That was not it." : "");
  sessionStorage.removeItem("key");
  overall("starting", "locked");
  return null;
}

async function look() {
  let s = null;
  try {
    s = await fetched();
    document.body.dataset.stale = "no";
  } catch (error) {
    document.body.dataset.stale = "yes";
    overall("down", "no answer from the gateway");
  }
  if (s) show(s);
}

async function loop() {
  if (!document.hidden && $("door").hidden) await look();
  setTimeout(loop, 1000);
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value);
  $("key").value = "";
  look();
});
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText($("curl").textContent);
  say($("copy"), "Copied");
  setTimeout(() => say($("copy"), "Copy"), 1500);
});
say($("base"), `${location.origin}/v1`);
loop();
