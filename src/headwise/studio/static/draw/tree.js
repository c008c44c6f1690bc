// A beam search as a tree: a column for each step, the better hypotheses higher.
import { onPress, svg } from "../dom.js";
import { formatFixed, visible } from "../format.js";

const ACROSS = 96, DOWN = 46, WIDE = 70, HIGH = 34, LEFT = 34;

/** The indices of a node and its ancestors, the first token first. */
export function pathTo(nodes, index) {
  const path = [];
  for (let at = index; at >= 0; at = nodes[at].parent) path.unshift(at);
  return path;
}

/** The best finished hypothesis. */
export function bestNode(nodes) {
  return nodes.reduce((best, node, index) => (node.fate === "ended" && (best < 0 || node.score > nodes[best].score) ? index : best), -1);
}

export function drawTree(nodes, onChoose, onHover = () => {}) {
  const x = (node) => LEFT + ACROSS * node.step, y = (node) => 6 + DOWN * node.slot;
  const width = LEFT + ACROSS * (1 + Math.max(...nodes.map((node) => node.step))), height = DOWN * (1 + Math.max(...nodes.map((node) => node.slot)));
  const best = new Set(pathTo(nodes, bestNode(nodes)));
  const edges = nodes.map((node, index) => {
    const from = node.parent < 0 ? { x: 12, y: 6 + HIGH / 2 } : { x: x(nodes[node.parent]) + WIDE, y: y(nodes[node.parent]) + HIGH / 2 };
    const to = { x: x(node), y: y(node) + HIGH / 2 }, middle = (from.x + to.x) / 2;
    return svg("path", { class: `edge ${best.has(index) ? "best" : node.fate}`, d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}` });
  });
  const boxes = nodes.map((node, index) => {
    const label = visible(node.label), act = () => onChoose(index);
    return svg("g", {
      class: `leaf ${best.has(index) ? "best " : ""}${node.fate}`, role: "button", tabindex: 0, transform: `translate(${x(node)} ${y(node)})`,
      "aria-label": `step ${node.step + 1}: ${label}, log P ${formatFixed(node.log_prob, 2)}, ${node.fate}`,
      onclick: act, onkeydown: onPress(act), onmouseenter: () => onHover(index), onfocus: () => onHover(index),
    },
    svg("rect", { width: WIDE, height: HIGH, rx: 6 }),
    svg("text", { class: "token", x: WIDE / 2, y: 15, "text-anchor": "middle" }, label.length > 8 ? `${label.slice(0, 7)}…` : label),
    svg("text", { class: "tick", x: WIDE / 2, y: 28, "text-anchor": "middle" }, formatFixed(node.log_prob, 2)));
  });
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Beam search: hypotheses by step", onmouseleave: () => onHover(null) },
    ...edges, svg("circle", { class: "root", cx: 10, cy: 6 + HIGH / 2, r: 4 }), ...boxes);
}
