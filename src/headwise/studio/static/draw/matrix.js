// A heat map with the value under the pointer, or at the cell chosen with the arrow keys.
import { ARROWS, announce, svg } from "../dom.js";
import { weightColour, drawCells } from "./colours.js";

const LABEL = "Attention weights, queries down and keys across";
const MAX_LABEL = 18; // characters of a label

/** `shade`: value -> [r, g, b]; `room`: pixels for the longer side; `high`: height of a row, if cells are not square;
 * `named`: show names even if cells are small; `onChoose({ row, column, weight })` is called on a click or Enter, `onHover` with
 * the cell under the pointer, or null. */
export function drawMatrix(rows, columns, weights, onHover = () => {}, { shade = weightColour(), label = LABEL, room = 720, high = null, named = false, onChoose = null } = {}) {
  const cell = Math.max(3, Math.min(28, Math.floor(room / Math.max(rows.length, columns.length))));
  const rowHeight = high ?? cell;
  named ||= cell >= 11;
  const margin = (names) => (named ? Math.max(30, ...names.map((token) => 7.6 * Math.min(token.length, MAX_LABEL))) + 10 : 6);
  const left = margin(rows), top = margin(columns), width = left + cell * columns.length + 4, height = top + rowHeight * rows.length + 4;
  const truncate = (token) => (token.length > MAX_LABEL ? `${token.slice(0, MAX_LABEL - 1)}…` : token);
  const names = named ? [
    ...rows.map((token, row) => svg("text", { class: "token", x: left - 6, y: top + rowHeight * (row + 0.5) + 4, "text-anchor": "end" }, truncate(token))),
    ...columns.map((token, column) => svg("text", { class: "token", transform: `translate(${left + cell * (column + 0.5) + 4} ${top - 6}) rotate(-90)` }, truncate(token))),
  ] : [];
  const picture = svg("image", { href: drawCells(weights, columns.length, shade), x: left, y: top, width: cell * columns.length, height: rowHeight * rows.length, preserveAspectRatio: "none", "image-rendering": "pixelated" });
  const pointer = svg("rect", { width: cell, height: rowHeight, fill: "none", stroke: "currentColor", "stroke-width": 1.5, visibility: "hidden" });
  let current = null;

  function point(row, column) {
    const inside = row >= 0 && column >= 0 && row < rows.length && column < columns.length;
    current = inside ? { row, column, weight: weights[row * columns.length + column] } : null;
    pointer.setAttribute("visibility", inside ? "visible" : "hidden");
    pointer.setAttribute("x", left + cell * column);
    pointer.setAttribute("y", top + rowHeight * row);
    onHover(current);
  }

  function move(event) {
    if (event.key === "Enter" && current && onChoose) onChoose(current);
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const clamp = (index, count) => Math.max(0, Math.min(count - 1, index));
    if (current) point(clamp(current.row + step[0], rows.length), clamp(current.column + step[1], columns.length));
    else point(0, 0);
    announce(`${rows[current.row]}, ${columns[current.column]}: ${current.weight.toFixed(4)}`);
  }

  const figure = svg("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, tabindex: 0, "data-key": label, class: onChoose ? "matrix-figure open" : "matrix-figure",
    onkeydown: move, onclick: () => { if (current && onChoose) onChoose(current); }, onmouseleave: () => point(-1, -1),
    onmousemove: (event) => {
      const box = figure.getBoundingClientRect(), scale = width / box.width;
      point(Math.floor(((event.clientY - box.top) * scale - top) / rowHeight), Math.floor(((event.clientX - box.left) * scale - left) / cell));
    },
  }, picture, ...names, pointer);
  return { figure, left: named ? "" : "too many tokens to label: point at a cell to see its tokens" };
}
