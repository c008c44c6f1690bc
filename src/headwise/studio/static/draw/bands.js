// One query with all keys (after BertViz's neuron view): each key and its product with the query as a band of colours.
import { onPress, addRovingFocus, svg } from "../dom.js";
import { drawCells, signedColour } from "./colours.js";

const STEP = 20, WIDE = { gap: 24, sum: 70, bar: 90, number: 64, letters: 18 }, NARROW = { gap: 10, sum: 52, bar: 30, number: 42, letters: 8 };

/** `keys`: Float32Array of keys x width; `onChoose(key)` is called on a click, `onHover(key, index)` with the element
 * under the pointer; `room`: width in pixels. */
export function drawBands({ query, columns, q, keys, dots, weights }, chosen, { onChoose = () => {}, onHover = () => {}, room = 720 } = {}) {
  const { gap, sum, bar, number, letters } = room < 600 ? NARROW : WIDE, width = q.length;
  const left = Math.max(62, ...columns.map((token) => 8 * Math.min(token.length, letters))) + 12, top = 64;
  const cell = Math.max(2, Math.min(12, Math.floor((room - left - gap - sum - bar - number) / 2 / width), Math.floor(230 / width))), band = cell * width;
  const products = keys.map((each, index) => each * q[index % width]);
  const second = left + band + gap, sums = second + band + sum, bars = sums + gap / 2, whole = bars + bar + number, height = top + STEP * columns.length + 8;
  const y = (row) => top + STEP * row;
  const drawBand = (x, at, values, rows) => svg("image", { href: drawScaled(values, width), x, y: at, width: band, height: STEP * rows, preserveAspectRatio: "none", "image-rendering": "pixelated" });
  const text = (x, at, content, settings = {}) => svg("text", { class: "token", x, y: at, ...settings }, content);
  const rows = columns.map((token, row) => svg("g", {
    class: "key", role: "button", "data-key": `key ${row}`, "aria-pressed": String(row === chosen), "aria-label": `key ${token}: weight ${weights[row].toFixed(4)}`,
    onclick: () => onChoose(row), onkeydown: onPress(() => onChoose(row)),
  },
  svg("rect", { x: 0, y: y(row), width: whole, height: STEP, fill: row === chosen ? "var(--accent-soft)" : "transparent" }),
  text(left - 10, y(row) + 14, token.length > letters ? `${token.slice(0, letters - 1)}…` : token, { "text-anchor": "end" }),
  text(sums, y(row) + 14, dots[row].toFixed(2).replace("-", "−"), { "text-anchor": "end" }),
  svg("rect", { x: bars, y: y(row) + 4, width: bar * weights[row], height: STEP - 8, fill: "var(--accent)" }),
  text(bars + bar * weights[row] + 6, y(row) + 14, weights[row].toFixed(3))));
  addRovingFocus(rows.map((row) => [row]));
  const figure = svg("svg", {
    width: whole, height, viewBox: `0 0 ${whole} ${height}`, role: "group", "aria-label": "One query with all keys",
    onmousemove: (event) => {
      const box = figure.getBoundingClientRect(), scale = whole / box.width;
      const x = (event.clientX - box.left) * scale, row = Math.floor(((event.clientY - box.top) * scale - top) / STEP);
      const index = Math.floor((x - (x < second ? left : second)) / cell);
      if (row >= 0 && row < columns.length && index >= 0 && index < width) onHover(row, index);
    },
  },
  text(left - 10, 34, `q of ${query}`.slice(0, letters + 6), { "text-anchor": "end" }), drawBand(left, 20, Float32Array.from(q), 1),
  text(left, 58, "k"), text(second, 58, "q × k"), text(sums, 58, "q·k", { "text-anchor": "end" }), text(bars, 58, "weight"),
  ...rows, passClicks(drawBand(left, top, keys, columns.length)), passClicks(drawBand(second, top, products, columns.length)));
  return figure;
}

/** Images let clicks through to the rows below them. */
const passClicks = (node) => { node.setAttribute("pointer-events", "none"); return node; };

/** Draw values in colours scaled to the largest one. */
function drawScaled(values, columns) {
  const shade = signedColour(), largest = values.reduce((most, each) => Math.max(most, Math.abs(each)), 1e-9);
  return drawCells(values, columns, (value) => shade(value / largest));
}
