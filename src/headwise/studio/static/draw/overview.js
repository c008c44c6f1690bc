// Every head of every layer as a thumbnail (after BertViz's model view).
import { onPress, addRovingFocus, svg } from "../dom.js";
import { weightColour, drawCells } from "./colours.js";

const LEFT = 58, TOP = 20, GAP = 8, SMALLEST = 24, LARGEST = 76;

/** `values`: thumbnails of all layers and heads, one after the other; `onChoose(layer, head)` is called on a click or Enter. */
export function drawOverview(kind, values, chosen, onChoose, room = 720) {
  const [layers, count, rows, columns] = kind.thumbnails.shape, size = rows * columns, shade = weightColour();
  const side = Math.max(SMALLEST, Math.min(LARGEST, Math.floor((room - LEFT) / count) - GAP));
  const x = (head) => LEFT + (side + GAP) * head, y = (layer) => TOP + (side + GAP) * layer;
  const axis = (text, settings) => svg("text", { class: "tick", ...settings }, text);
  const thumbnail = (layer, head) => {
    const start = (layer * count + head) * size, act = () => onChoose(layer, head), name = `layer ${layer + 1}, head ${head + 1}`;
    return svg("g", { class: "thumb", role: "button", "data-key": name, "aria-label": name, "aria-pressed": String(layer === chosen.layer && chosen.heads.has(head)), onclick: act, onkeydown: onPress(act) },
      svg("image", { href: drawCells(values.subarray(start, start + size), columns, shade), x: x(head), y: y(layer), width: side, height: side, preserveAspectRatio: "none", "image-rendering": "pixelated" }),
      svg("rect", { x: x(head) - 2, y: y(layer) - 2, width: side + 4, height: side + 4, rx: 3 }));
  };
  const grid = kind.present.map((heads, layer) => heads.flatMap((present, head) => (present ? [thumbnail(layer, head)] : [])));
  addRovingFocus(grid);
  const width = x(count), height = y(layers);
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Every head of every layer" },
    ...Array.from({ length: count }, (_, head) => axis(`${head + 1}`, { x: x(head) + side / 2, y: TOP - 8, "text-anchor": "middle" })),
    ...grid.map((_, layer) => axis(`layer ${layer + 1}`, { x: LEFT - 10, y: y(layer) + side / 2 + 4, "text-anchor": "end" })), ...grid.flat());
}
