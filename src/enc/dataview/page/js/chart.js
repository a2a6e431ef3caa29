// Responsive SVG charts, each with a table of the same data.

import { clear, h, svg } from "./dom.js";
import { compact, number } from "./format.js";

const HEIGHT = 200, LEFT = 60, RIGHT = 8, TOP = 12, BOTTOM = 26;

// points: [{label, tick, value}], in order of time. `tick`: label under the axis, if it fits.
export function bars(title, points, { unit = "", show = number, columns = ["When", title] } = {}) {
  const place = h("div", { class: "plot" });
  const said = h("p", { class: "readout", "aria-hidden": "true" }, "\u00a0");
  const total = points.reduce((sum, point) => sum + (point.value ?? 0), 0);
  const name = `${title}: ${points.length} values, ${points[0]?.label ?? ""} to ${points.at(-1)?.label ?? ""}`;
  new ResizeObserver(() => draw(place, points, { name, show, unit, said })).observe(place);
  const rows = points.map((point) => h("tr", {}, h("th", { scope: "row" }, point.label), h("td", { class: "num" }, point.value === null ? "–" : show(point.value))));
  const inside = h("table", { class: "compact" }, h("caption", { class: "hidden" }, title),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, columns[0]), h("th", { scope: "col", class: "num" }, columns[1]))), h("tbody", {}, rows));
  const scroll = h("div", { class: "scroll low", tabindex: "0", role: "group", "aria-label": `${title} as a table` }, inside);
  const figure = h("figure", { class: "chart" }, place, said, h("details", {}, h("summary", {}, "As a table"), scroll));
  figure.dataset.total = String(total);
  return figure;
}

function draw(place, points, { name, show, unit, said }) {
  const width = Math.max(240, Math.floor(place.clientWidth));
  if (place.dataset.width === String(width)) return;
  place.dataset.width = String(width);
  const most = scale(Math.max(...points.map((point) => point.value ?? 0), 0));
  const inner = width - LEFT - RIGHT, tall = HEIGHT - TOP - BOTTOM, step = inner / points.length;
  const y = (value) => TOP + tall - (value / most) * tall;
  const lines = [0, 0.5, 1].map((part) => [
    svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(most * part), y2: y(most * part) }),
    svg("text", { class: "axis", x: LEFT - 8, y: y(most * part) + 4, "text-anchor": "end" }, label(most * part, show, unit)),
  ]);
  const thick = Math.max(1, Math.min(step * 0.72, 28));
  const drawn = points.map((point, n) => {
    if (!point.value) return null;
    const top = Math.min(y(point.value), TOP + tall - 1.5);
    return svg("rect", { class: "bar", x: LEFT + n * step + (step - thick) / 2, y: top, width: thick, height: TOP + tall - top, rx: Math.min(2, thick / 3) });
  });
  const hot = svg("rect", { class: "hot", y: TOP, height: tall, width: step, visibility: "hidden" });
  const made = svg("svg", { role: "img", "aria-label": name, width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` }, lines, hot, drawn, ticks(points, step, width));
  made.addEventListener("pointermove", (event) => point(event, { made, hot, points, step, said, show }));
  made.addEventListener("pointerleave", () => {
    hot.setAttribute("visibility", "hidden");
    said.textContent = "\u00a0";
  });
  clear(place).append(made);
}

function label(value, show, unit) {
  return unit === "ms" ? show(value) : compact(value);
}

function point(event, { made, hot, points, step, said, show }) {
  const n = Math.floor((event.clientX - made.getBoundingClientRect().left - LEFT) / step);
  if (n < 0 || n >= points.length) return;
  hot.setAttribute("x", LEFT + n * step);
  hot.setAttribute("visibility", "visible");
  said.textContent = `${points[n].label}: ${points[n].value === null ? "nothing" : show(points[n].value)}`;
}

const LETTER = 7; // pixels, at most, of a letter of the axis

// Returns as many ticks as fit without touching, including the last one.
function ticks(points, step, width) {
  const found = [];
  let free = width; // where the tick to the right begins
  for (let n = points.length - 1; n >= 0; n -= 1) {
    const half = (points[n].tick.length * LETTER) / 2;
    const x = Math.min(LEFT + (n + 0.5) * step, width - half);
    if (x + half > free || x - half < 0) continue;
    free = x - half - 3 * LETTER;
    found.push(svg("text", { class: "axis", x, y: HEIGHT - 8, "text-anchor": "middle" }, points[n].tick));
  }
  return found;
}

// Returns a round upper bound.
export function scale(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  const found = [1, 2, 4, 5, 10].find((times) => times * power >= most) * power;
  return Math.max(found, 2);
}

// Shares of a whole as table rows with a bar each.
export function shares(title, items, { show = number, label: heading = "What" } = {}) {
  const most = Math.max(...items.map((item) => item.value), 1);
  const rows = items.map((item) => {
    const bar = h("span", { class: "share" });
    bar.style.width = `${Math.max(0.5, (item.value / most) * 100)}%`;
    return h("tr", {}, h("th", { scope: "row" }, item.label), h("td", { class: "wide", "aria-hidden": "true" }, bar), h("td", { class: "num" }, show(item.value)));
  });
  return h("table", { class: "shares" }, h("caption", { class: "hidden" }, title),
    h("thead", { class: "hidden" }, h("tr", {}, h("th", { scope: "col" }, heading), h("td", {}), h("th", { scope: "col" }, "Count"))),
    h("tbody", {}, rows));
}
