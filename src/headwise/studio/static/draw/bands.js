// One query at all keys (after BertViz's neuron view): each key and its product with the query as a band of shades.
import { el, svg } from "../dom.js";
import { signed } from "./colours.js";

const STEP = 20, BAR = 90;

/** `keys`: Float32Array of keys x width; `choose(key)` hears of a click, `tell(key, place)` of the pointer on a band. */
export function bands({ query, columns, q, keys, dots, weights }, chosen, { choose = () => {}, tell = () => {} } = {}) {
  const width = q.length, cell = Math.max(2, Math.min(12, Math.floor(230 / width))), band = cell * width;
  const left = Math.max(80, ...columns.map((token) => 8 * Math.min(token.length, 18))) + 12, top = 64;
  const products = keys.map((each, place) => each * q[place % width]);
  const second = left + band + 24, sums = second + band + 70, bars = sums + 16, whole = bars + BAR + 64, height = top + STEP * columns.length + 8;
  const y = (row) => top + STEP * row;
  const shown = (x, at, values, rows) => svg("image", { href: shades(values, width, rows), x, y: at, width: band, height: STEP * rows, preserveAspectRatio: "none", "image-rendering": "pixelated" });
  const text = (x, at, told, settings = {}) => svg("text", { class: "token", x, y: at, ...settings }, told);
  const rows = columns.map((token, row) => svg("g", {
    class: "key", role: "button", tabindex: 0, "data-key": `key ${row}`, "aria-pressed": String(row === chosen), "aria-label": `key ${token}: weight ${weights[row].toFixed(4)}`,
    onclick: () => choose(row), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(row); } },
  },
  svg("rect", { x: 0, y: y(row), width: whole, height: STEP, fill: row === chosen ? "var(--accent-soft)" : "transparent" }),
  text(left - 10, y(row) + 14, token.length > 18 ? `${token.slice(0, 17)}…` : token, { "text-anchor": "end" }),
  text(sums, y(row) + 14, dots[row].toFixed(2).replace("-", "−"), { "text-anchor": "end" }),
  svg("rect", { x: bars, y: y(row) + 4, width: BAR * weights[row], height: STEP - 8, fill: "var(--accent)" }),
  text(bars + BAR * weights[row] + 6, y(row) + 14, weights[row].toFixed(3))));
  const figure = svg("svg", {
    width: whole, height, viewBox: `0 0 ${whole} ${height}`, role: "group", "aria-label": "A query at all keys",
    onmousemove: (event) => {
      const box = figure.getBoundingClientRect(), scale = whole / box.width;
      const x = (event.clientX - box.left) * scale, row = Math.floor(((event.clientY - box.top) * scale - top) / STEP);
      const place = Math.floor((x - (x < second ? left : second)) / cell);
      if (row >= 0 && row < columns.length && place >= 0 && place < width) tell(row, place);
    },
  },
  text(left - 10, 34, `q of ${query}`.slice(0, 24), { "text-anchor": "end" }), shown(left, 20, Float32Array.from(q), 1),
  text(left, 58, "k"), text(second, 58, "q × k"), text(sums, 58, "q·k", { "text-anchor": "end" }), text(bars, 58, "weight"),
  ...rows, clear(shown(left, top, keys, columns.length)), clear(shown(second, top, products, columns.length)));
  return figure;
}

/** Pictures let clicks through to the rows below them. */
const clear = (node) => { node.setAttribute("pointer-events", "none"); return node; };

function shades(values, width, rows) {
  const shade = signed(), largest = values.reduce((most, each) => Math.max(most, Math.abs(each)), 1e-9);
  const canvas = el("canvas", { width, height: rows }), image = new ImageData(width, rows);
  values.forEach((value, place) => image.data.set([...shade(value / largest), 255], 4 * place));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas.toDataURL();
}
