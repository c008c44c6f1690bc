// A beam search as a tree: a column for each step, the better hypotheses higher.
import { pressed, svg } from "../dom.js";
import { fixed, shown } from "../words.js";

const ACROSS = 96, DOWN = 46, WIDE = 70, HIGH = 34, LEFT = 34;

/** The numbers of a node and of all it grew from, the first token first. */
export function path(nodes, number) {
  const found = [];
  for (let at = number; at >= 0; at = nodes[at].parent) found.unshift(at);
  return found;
}

/** The best of what ended. */
export function winner(nodes) {
  return nodes.reduce((best, node, number) => (node.fate === "ended" && (best < 0 || node.score > nodes[best].score) ? number : best), -1);
}

export function tree(nodes, choose, tell = () => {}) {
  const x = (node) => LEFT + ACROSS * node.step, y = (node) => 6 + DOWN * node.slot;
  const width = LEFT + ACROSS * (1 + Math.max(...nodes.map((node) => node.step))), height = DOWN * (1 + Math.max(...nodes.map((node) => node.slot)));
  const best = new Set(path(nodes, winner(nodes)));
  const edges = nodes.map((node, number) => {
    const from = node.parent < 0 ? { x: 12, y: 6 + HIGH / 2 } : { x: x(nodes[node.parent]) + WIDE, y: y(nodes[node.parent]) + HIGH / 2 };
    const to = { x: x(node), y: y(node) + HIGH / 2 }, middle = (from.x + to.x) / 2;
    return svg("path", { class: `edge ${best.has(number) ? "best" : node.fate}`, d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}` });
  });
  const boxes = nodes.map((node, number) => {
    const label = shown(node.label), act = () => choose(number);
    return svg("g", {
      class: `leaf ${best.has(number) ? "best " : ""}${node.fate}`, role: "button", tabindex: 0, transform: `translate(${x(node)} ${y(node)})`,
      "aria-label": `step ${node.step + 1}: ${label}, log P ${fixed(node.log_prob, 2)}, ${node.fate}`,
      onclick: act, onkeydown: pressed(act), onmouseenter: () => tell(number), onfocus: () => tell(number),
    },
    svg("rect", { width: WIDE, height: HIGH, rx: 6 }),
    svg("text", { class: "token", x: WIDE / 2, y: 15, "text-anchor": "middle" }, label.length > 8 ? `${label.slice(0, 7)}…` : label),
    svg("text", { class: "tick", x: WIDE / 2, y: 28, "text-anchor": "middle" }, fixed(node.log_prob, 2)));
  });
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Beam search: hypotheses by step", onmouseleave: () => tell(null) },
    ...edges, svg("circle", { class: "root", cx: 10, cy: 6 + HIGH / 2, r: 4 }), ...boxes);
}
