// The logit lens: the most probable token of each layer at each position, shaded by its probability.
import { addRovingFocus, svg } from "../dom.js";
import { visible } from "../format.js";
import { weightColour, textColour } from "./colours.js";

const WIDE = 66, HIGH = 28, LEFT = 70;
const truncate = (label) => (label.length > 7 ? `${label.slice(0, 6)}…` : label);

export function drawLens(tokens, layers, onHover) {
  const width = LEFT + WIDE * tokens.length + 4, height = HIGH * (layers.length + 1) + 6, shade = weightColour();
  const cells = tokens.map((token, index) => svg("text", { class: "token", x: LEFT + WIDE * (index + 0.5), y: HIGH * layers.length + 22, "text-anchor": "middle" }, truncate(visible(token))));
  cells.push(svg("text", { class: "tick", x: LEFT - 8, y: HIGH * layers.length + 22, "text-anchor": "end" }, "output"));
  const grid = layers.map((layer, row) => {
    const y = HIGH * row;
    cells.push(svg("text", { class: "tick", x: LEFT - 8, y: y + 18, "text-anchor": "end" }, `layer ${row + 1}`));
    return layer.top_tokens.map(([guess], index) => {
      const rgb = shade(layer.probs[index][0] ** 2); // the scale takes a square root, which would show small probabilities too dark
      return svg("g", { class: layer.ranks[index] === 1 ? "guess right" : "guess", role: "img", "aria-label": `layer ${row + 1}, at ${visible(tokens[index])}: ${visible(guess)}`, onmouseenter: () => onHover(row, index), onfocus: () => onHover(row, index) },
        svg("rect", { x: LEFT + WIDE * index + 1, y: y + 1, width: WIDE - 2, height: HIGH - 2, rx: 4, fill: `rgb(${rgb})` }),
        svg("text", { class: "guess-text", x: LEFT + WIDE * (index + 0.5), y: y + 18, "text-anchor": "middle", fill: textColour(rgb) }, truncate(visible(guess))));
    });
  });
  addRovingFocus(grid);
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "The most probable token of each layer", onmouseleave: () => onHover(null) }, ...cells, ...grid.flat());
}
