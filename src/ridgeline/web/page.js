// What all parts of the page share: numbers as people read them, and ways to write into the page.
// Names come from outside, so text is only ever set as text, never as HTML.

export const $ = (id) => document.getElementById(id);
export const NONE = "–"; // for what is not known: never a zero

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const cents = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const known = (x) => x !== null && x !== undefined;
export const count = (x) => (known(x) ? whole.format(x) : NONE);
export const rate = (x) => (x >= 100 || x === 0 ? whole.format(x) : one.format(x));
export const percent = (share) => (known(share) ? `${one.format(share * 100)} %` : NONE);
export const roundPercent = (share) => (known(share) ? `${whole.format(share * 100)} %` : NONE);

export function short(x) {
  if (!known(x)) return NONE;
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"]]) if (x >= size) return one.format(x / size) + unit;
  return x >= 1e5 ? `${whole.format(x / 1e3)}k` : whole.format(x);
}

export const tight = (x) => (x >= 1e4 && x < 1e5 ? `${one.format(x / 1e3)}k` : short(x));

export function usd(text) {
  if (!known(text)) return NONE;
  const x = Number(text), size = Math.abs(x), sign = x < 0 ? "−" : "";
  if (size >= 1000) return `${sign}$${whole.format(size)}`;
  if (size >= 0.1) return `${sign}$${cents.format(size)}`;
  return `${sign}$${few.format(size)}`;
}

export function time(s) {
  if (!known(s)) return [NONE, ""];
  if (s < 0.1) return [(s * 1000).toFixed(1), "ms"];
  if (s < 1) return [(s * 1000).toFixed(0), "ms"];
  return [s < 100 ? s.toFixed(2) : s.toFixed(0), "s"];
}
export const timeText = (s) => time(s).join(" ").trim();

export function since(s) {
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${Math.floor(s) % 60} s` : `${Math.floor(s)} s`;
}
export const clock = (unix) => new Date(unix * 1000).toLocaleTimeString("en-GB");

export function statusClass(status) {
  if (status === 499) return "status left";
  return status >= 500 ? "status server" : status >= 400 ? "status client" : "status";
}
export const statusText = (status) => (status === 499 ? "left" : status ? String(status) : NONE);

// What is there is changed, not made anew, so that a selection survives.

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function made(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function from(template) {
  return $(template).content.firstElementChild.cloneNode(true);
}

export function rows(body, items, make, fill) {
  while (body.children.length > items.length) body.lastElementChild.remove();
  items.forEach((item, at) => {
    const row = body.children[at] || body.appendChild(headed(body, make()));
    fill(row, item);
  });
}

// Each cell knows its column's heading: where a table's rows are stacked it stands beside the value.

function headed(body, row) {
  const heads = body.parentElement?.tHead?.rows[0].cells || [];
  [...heads].forEach((head, at) => { row.children[at].dataset.head = head.textContent; });
  return row;
}

export const cells = (...classes) => () => {
  const row = made("tr");
  classes.forEach((name) => row.append(made("td", name)));
  return row;
};

// A bar with its words; `share` is what is used and `held` what is only held, null where unknown.

export function bar() {
  const node = made("span", "usage"), track = made("span", "track");
  track.append(made("i", "fill"), made("i", "fill held"));
  node.append(track, made("span", "words"));
  return node;
}

export function fillBar(node, share, text, { held = 0, full = 0.95 } = {}) {
  const [track, words] = node.children, [used, more] = track.children;
  track.hidden = !known(share);
  say(words, text);
  if (!known(share)) return;
  const shown = Math.max(0, Math.min(1, share)), rest = Math.max(0, Math.min(1 - shown, held));
  used.style.width = `${shown * 100}%`;
  more.style.width = `${rest * 100}%`;
  used.classList.toggle("full", share + held >= full);
}

// A cell that opens what was decided for a request: its id is in the address, so it can be passed on.

export function whyLink() {
  return made("a", "why");
}

export function toWhy(link, id, text) {
  const address = `#why=${encodeURIComponent(id)}`;
  if (link.getAttribute("href") !== address) link.setAttribute("href", address);
  link.title = `why ${id} went where it went`;
  say(link, text);
}
