// One map as a heat map, with the value under the pointer.
import { svg, el } from "../dom.js";
import { ramp } from "./colours.js";

const LABEL = "Attention weights, queries down and keys across";

/** `shade`: value -> [r, g, b]; `room`: pixels for the longer side; `named`: whether names stand beside small cells too. */
export function matrix(rows, columns, weights, tell = () => {}, { shade = ramp(), label = LABEL, room = 720, named = false } = {}) {
  const cell = Math.max(3, Math.min(28, Math.floor(room / Math.max(rows.length, columns.length))));
  named ||= cell >= 11;
  const left = named ? Math.max(30, ...rows.map((token) => 7.6 * Math.min(token.length, 18))) + 10 : 6;
  const top = named ? Math.max(30, ...columns.map((token) => 7.6 * Math.min(token.length, 18))) + 10 : 6;
  const width = left + cell * columns.length + 4, height = top + cell * rows.length + 4;
  const canvas = el("canvas", { width: columns.length, height: rows.length });
  const image = new ImageData(columns.length, rows.length);
  weights.forEach((weight, place) => image.data.set([...shade(weight), 255], 4 * place));
  canvas.getContext("2d").putImageData(image, 0, 0);
  const cut = (token) => (token.length > 18 ? `${token.slice(0, 17)}…` : token);
  const names = named ? [
    ...rows.map((token, row) => svg("text", { class: "token", x: left - 6, y: top + cell * (row + 0.5) + 4, "text-anchor": "end" }, cut(token))),
    ...columns.map((token, column) => svg("text", { class: "token", transform: `translate(${left + cell * (column + 0.5) + 4} ${top - 6}) rotate(-90)` }, cut(token))),
  ] : [];
  const picture = svg("image", { href: canvas.toDataURL(), x: left, y: top, width: cell * columns.length, height: cell * rows.length, preserveAspectRatio: "none", "image-rendering": "pixelated" });
  const pointer = svg("rect", { width: cell, height: cell, fill: "none", stroke: "currentColor", "stroke-width": 1.5, visibility: "hidden" });
  const figure = svg("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
    onmousemove: (event) => {
      const box = figure.getBoundingClientRect(), scale = width / box.width;
      const column = Math.floor(((event.clientX - box.left) * scale - left) / cell);
      const row = Math.floor(((event.clientY - box.top) * scale - top) / cell);
      const inside = row >= 0 && column >= 0 && row < rows.length && column < columns.length;
      pointer.setAttribute("visibility", inside ? "visible" : "hidden");
      if (!inside) return tell(null);
      pointer.setAttribute("x", left + cell * column);
      pointer.setAttribute("y", top + cell * row);
      tell({ row, column, weight: weights[row * columns.length + column] });
    },
  }, picture, ...names, pointer);
  return { figure, left: named ? "" : "tokens are named under the pointer: there are too many for the margins" };
}
