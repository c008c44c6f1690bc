// How much each head matters: a grid of layers and heads, whose cells can be switched off.
import { pressed, roving, svg } from "../dom.js";
import { fixed } from "../words.js";
import { readable, signed } from "./colours.js";

const CELL = 46, HIGH = 28, LEFT = 62, TOP = 22;
const number = (value) => fixed(value, Math.abs(value) >= 9.95 ? 0 : 1);

/** `layers`: [{ heads, whole }] as counts; `known[layer]`: { heads: [change], whole } once measured; `scale`: what is full colour. */
export function effects(layers, known, scale, { key, off, toggle, tell }) {
  const most = Math.max(...layers.map((layer) => layer.heads)), every = layers.some((layer) => layer.whole);
  const width = LEFT + CELL * (most + (every ? 1 : 0)) + (every ? 10 : 0) + 4, height = TOP + HIGH * layers.length + 4;
  const shade = signed(), cells = [], x = (head) => LEFT + CELL * head + (head === most ? 10 : 0);
  const axis = (text, at, y, anchor = "middle") => svg("text", { class: "tick", x: at, y, "text-anchor": anchor }, text);
  for (let head = 0; head < most; head++) cells.push(axis(`${head + 1}`, x(head) + CELL / 2, 14));
  if (every) cells.push(axis("all", x(most) + CELL / 2, 14));
  const grid = layers.map((layer, row) => {
    const y = TOP + HIGH * row;
    cells.push(axis(`layer ${row + 1}`, LEFT - 8, y + 18, "end"));
    const heads = [...Array.from({ length: layer.heads }, (_, head) => head), ...(layer.whole ? [most] : [])];
    return heads.map((head) => {
      const whole = head === most, value = known[row] && (whole ? known[row].whole : known[row].heads[head]);
      const there = value !== undefined && value !== null, rgb = shade(there ? Math.max(-1, Math.min(1, value / scale)) : 0);
      const name = `layer ${row + 1}, ${whole ? "all heads" : `head ${head + 1}`}`, act = () => toggle(row, whole ? null : head);
      return svg("g", {
        class: "cell", role: "button", "data-key": key(row, whole ? null : head), "aria-pressed": String(off(row, whole ? null : head)), "aria-label": `silence ${name}${there ? `, log P changes by ${number(value)}` : ""}`,
        onclick: act, onkeydown: pressed(act),
        onmouseenter: () => tell(name, value), onfocus: () => tell(name, value),
      },
      svg("rect", { x: x(head) + 1, y: y + 1, width: CELL - 2, height: HIGH - 2, rx: 4, fill: `rgb(${rgb})` }),
      svg("text", { class: "cell-text", x: x(head) + CELL / 2, y: y + 18, "text-anchor": "middle", fill: readable(rgb) }, there ? number(value) : "·"));
    });
  });
  roving(grid);
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Heads by layer", onmouseleave: () => tell(null) }, ...cells, ...grid.flat());
}
