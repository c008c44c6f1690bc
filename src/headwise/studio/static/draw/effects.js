// The effect of ablating each head: a grid of layers and heads, whose cells toggle the ablation.
import { onPress, addRovingFocus, svg } from "../dom.js";
import { formatFixed } from "../format.js";
import { textColour, signedColour } from "./colours.js";

const CELL = 46, HIGH = 28, LEFT = 62, TOP = 22;
const number = (value) => formatFixed(value, Math.abs(value) >= 9.95 ? 0 : 1);

/** `layers`: [{ heads, can_ablate }], the number of heads and whether the whole layer can be ablated; `known[layer]`:
 * { heads: [change], layer: change } once measured; `scale`: the change with full colour. */
export function drawEffects(layers, known, scale, { key, isOff, onToggle, onHover }) {
  const most = Math.max(...layers.map((layer) => layer.heads)), hasLayers = layers.some((layer) => layer.can_ablate);
  const width = LEFT + CELL * (most + (hasLayers ? 1 : 0)) + (hasLayers ? 10 : 0) + 4, height = TOP + HIGH * layers.length + 4;
  const shade = signedColour(), cells = [], x = (head) => LEFT + CELL * head + (head === most ? 10 : 0);
  const axis = (text, at, y, anchor = "middle") => svg("text", { class: "tick", x: at, y, "text-anchor": anchor }, text);
  for (let head = 0; head < most; head++) cells.push(axis(`${head + 1}`, x(head) + CELL / 2, 14));
  if (hasLayers) cells.push(axis("all", x(most) + CELL / 2, 14));
  const grid = layers.map((layer, row) => {
    const y = TOP + HIGH * row;
    cells.push(axis(`layer ${row + 1}`, LEFT - 8, y + 18, "end"));
    const heads = [...Array.from({ length: layer.heads }, (_, head) => head), ...(layer.can_ablate ? [most] : [])];
    return heads.map((head) => {
      const whole = head === most, value = known[row] && (whole ? known[row].layer : known[row].heads[head]);
      const measured = value !== undefined && value !== null, rgb = shade(measured ? Math.max(-1, Math.min(1, value / scale)) : 0);
      const name = `layer ${row + 1}, ${whole ? "all heads" : `head ${head + 1}`}`, act = () => onToggle(row, whole ? null : head);
      return svg("g", {
        class: "cell", role: "button", "data-key": key(row, whole ? null : head), "aria-pressed": String(isOff(row, whole ? null : head)), "aria-label": `ablate ${name}${measured ? `, log P changes by ${number(value)}` : ""}`,
        onclick: act, onkeydown: onPress(act),
        onmouseenter: () => onHover(name, value), onfocus: () => onHover(name, value),
      },
      svg("rect", { x: x(head) + 1, y: y + 1, width: CELL - 2, height: HIGH - 2, rx: 4, fill: `rgb(${rgb})` }),
      svg("text", { class: "cell-text", x: x(head) + CELL / 2, y: y + 18, "text-anchor": "middle", fill: textColour(rgb) }, measured ? number(value) : "·"));
    });
  });
  addRovingFocus(grid);
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Heads by layer", onmouseleave: () => onHover(null) }, ...cells, ...grid.flat());
}
