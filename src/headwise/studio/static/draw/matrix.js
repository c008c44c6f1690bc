// One map as a heat map, with the value under the pointer, or where the arrow keys lead.
import { ARROWS, say, svg } from "../dom.js";
import { ramp, shades } from "./colours.js";

const LABEL = "Attention weights, queries down and keys across";
const LONGEST = 18; // letters of a name

/** `shade`: value -> [r, g, b]; `room`: pixels for the longer side; `high`: of a row, where cells need not be square;
 * `named`: whether names stand beside small cells too; `choose({ row, column, weight })` hears of a click or Enter, `tell` of the
 * same under the pointer, or of null. */
export function matrix(rows, columns, weights, tell = () => {}, { shade = ramp(), label = LABEL, room = 720, high = null, named = false, choose = null } = {}) {
  const cell = Math.max(3, Math.min(28, Math.floor(room / Math.max(rows.length, columns.length))));
  const tall = high ?? cell;
  named ||= cell >= 11;
  const margin = (names) => (named ? Math.max(30, ...names.map((token) => 7.6 * Math.min(token.length, LONGEST))) + 10 : 6);
  const left = margin(rows), top = margin(columns), width = left + cell * columns.length + 4, height = top + tall * rows.length + 4;
  const cut = (token) => (token.length > LONGEST ? `${token.slice(0, LONGEST - 1)}…` : token);
  const names = named ? [
    ...rows.map((token, row) => svg("text", { class: "token", x: left - 6, y: top + tall * (row + 0.5) + 4, "text-anchor": "end" }, cut(token))),
    ...columns.map((token, column) => svg("text", { class: "token", transform: `translate(${left + cell * (column + 0.5) + 4} ${top - 6}) rotate(-90)` }, cut(token))),
  ] : [];
  const picture = svg("image", { href: shades(weights, columns.length, shade), x: left, y: top, width: cell * columns.length, height: tall * rows.length, preserveAspectRatio: "none", "image-rendering": "pixelated" });
  const pointer = svg("rect", { width: cell, height: tall, fill: "none", stroke: "currentColor", "stroke-width": 1.5, visibility: "hidden" });
  let at = null;

  function point(row, column) {
    const inside = row >= 0 && column >= 0 && row < rows.length && column < columns.length;
    at = inside ? { row, column, weight: weights[row * columns.length + column] } : null;
    pointer.setAttribute("visibility", inside ? "visible" : "hidden");
    pointer.setAttribute("x", left + cell * column);
    pointer.setAttribute("y", top + tall * row);
    tell(at);
  }

  function move(event) {
    if (event.key === "Enter" && at && choose) choose(at);
    const by = ARROWS[event.key];
    if (!by) return;
    event.preventDefault();
    const kept = (place, count) => Math.max(0, Math.min(count - 1, place));
    if (at) point(kept(at.row + by[0], rows.length), kept(at.column + by[1], columns.length));
    else point(0, 0);
    say(`${rows[at.row]}, ${columns[at.column]}: ${at.weight.toFixed(4)}`);
  }

  const figure = svg("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, tabindex: 0, "data-key": label, class: choose ? "matrix-figure open" : "matrix-figure",
    onkeydown: move, onclick: () => { if (at && choose) choose(at); }, onmouseleave: () => point(-1, -1),
    onmousemove: (event) => {
      const box = figure.getBoundingClientRect(), scale = width / box.width;
      point(Math.floor(((event.clientY - box.top) * scale - top) / tall), Math.floor(((event.clientX - box.left) * scale - left) / cell));
    },
  }, picture, ...names, pointer);
  return { figure, left: named ? "" : "tokens are named under the pointer: there are too many for the margins" };
}
