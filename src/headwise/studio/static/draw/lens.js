// What each layer would write, token by token: the guess, shaded by its probability.
import { roving, svg } from "../dom.js";
import { shown } from "../words.js";
import { ramp, readable } from "./colours.js";

const WIDE = 66, HIGH = 28, LEFT = 70;
const cut = (label) => (label.length > 7 ? `${label.slice(0, 6)}…` : label);

export function lens(tokens, layers, tell) {
  const width = LEFT + WIDE * tokens.length + 4, height = HIGH * (layers.length + 1) + 6, shade = ramp();
  const cells = tokens.map((token, place) => svg("text", { class: "token", x: LEFT + WIDE * (place + 0.5), y: HIGH * layers.length + 22, "text-anchor": "middle" }, cut(shown(token))));
  cells.push(svg("text", { class: "tick", x: LEFT - 8, y: HIGH * layers.length + 22, "text-anchor": "end" }, "written"));
  const grid = layers.map((layer, row) => {
    const y = HIGH * row;
    cells.push(svg("text", { class: "tick", x: LEFT - 8, y: y + 18, "text-anchor": "end" }, `layer ${row + 1}`));
    return layer.guesses.map(([guess], place) => {
      const rgb = shade(layer.probs[place][0] ** 2); // the ramp takes a root, which would shade the unsure like the sure
      return svg("g", { class: layer.ranks[place] === 1 ? "guess right" : "guess", role: "img", "aria-label": `layer ${row + 1}, before ${shown(tokens[place])}: ${shown(guess)}`, onmouseenter: () => tell(row, place), onfocus: () => tell(row, place) },
        svg("rect", { x: LEFT + WIDE * place + 1, y: y + 1, width: WIDE - 2, height: HIGH - 2, rx: 4, fill: `rgb(${rgb})` }),
        svg("text", { class: "guess-text", x: LEFT + WIDE * (place + 0.5), y: y + 18, "text-anchor": "middle", fill: readable(rgb) }, cut(shown(guess))));
    });
  });
  roving(grid);
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "The best guess of each layer", onmouseleave: () => tell(null) }, ...cells, ...grid.flat());
}
