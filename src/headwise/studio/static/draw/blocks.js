// A model as nested blocks with shapes and parameter counts; a click opens or closes a block.
import { onPress, svg } from "../dom.js";
import { formatShort } from "./plot.js";

const HEAD = 30, LINE = 18, PAD = 10, GAP = 6, LETTER = 7.2, MAX_OPEN = 26;
const COLOURS = [
  [/attention|itself|memory|mixer|performer|linear.*attention/i, "--part-attention"], [/feed|expert|mlp|gated/i, "--part-feed"],
  [/embed|table|patch|stem|position/i, "--part-embed"], [/norm/i, "--part-norm"],
];
const partColour = (kind) => COLOURS.find(([name]) => name.test(kind))?.[1] ?? "--part-other";

/** Add its path to every node; a module that only wraps one other is merged with it. */
export function prepareTree(node, path = "") {
  const own = path ? `${path}.${node.name}` : node.name;
  const below = node.children ?? [];
  if (path && below.length === 1 && !node.tensors && !node.repeats) {
    const only = below[0], joined = { ...only, name: `${node.name}.${only.name}` };
    if (!only.repeats) return prepareTree(joined, path);
  }
  return { ...node, path: own, children: below.map((each) => prepareTree(each, own)) };
}

/** The blocks that are open at first: breadth first, as many as fit on a screen. */
export function initiallyOpen(root) {
  const open = new Set([root.path]);
  let shown = 1 + root.children.length;
  for (let level = root.children; level.length; level = level.flatMap((node) => (open.has(node.path) ? node.children : []))) {
    for (const node of level) {
      if (!node.children.length || shown + node.children.length > MAX_OPEN) continue;
      open.add(node.path);
      shown += node.children.length;
    }
  }
  return open;
}

/** A member of a list is named by its class, not by its index. */
const isListItem = (node) => /^\d+$/.test(node.name);
const nodeName = (node) => `${node.repeats ? `${node.repeats} × ` : ""}${isListItem(node) ? node.kind : node.name}`;
const kind = (node) => (isListItem(node) ? "" : node.kind);
const shapes = (node) => Object.entries(node.tensors ?? {}).map(([name, shape]) => `${name} ${shape.join(" × ") || "1"}`);

/** The parameter count of a block as a sum. */
export function parameterFormula(node) {
  const own = Object.values(node.tensors ?? {}).map((shape) => shape.join(" × ") || "1");
  const below = node.children.map((each) => `${each.repeats ? `${each.repeats} × ` : ""}${each.parameters.toLocaleString("en")}`);
  const total = node.children.reduce((sum, each) => sum + (each.repeats ?? 1) * each.parameters, 0)
    + Object.values(node.tensors ?? {}).reduce((sum, shape) => sum + shape.reduce((product, side) => product * side, 1), 0);
  const shared = total > node.parameters ? ` − ${(total - node.parameters).toLocaleString("en")} shared` : "";
  return `${[...own, ...below].join(" + ")}${shared} = ${node.parameters.toLocaleString("en")}`;
}

export function drawBlocks(root, { open, onToggle, onHover = () => {}, sideBySide = true }) {
  const side = (node) => sideBySide && node === root && node.children.filter((each) => each.children.length).length > 1;
  const measured = new Map();

  function measure(node) {
    const isOpen = open.has(node.path), lines = isOpen ? shapes(node) : [];
    const own = LETTER * (nodeName(node).length + kind(node).length + formatShort(node.parameters).length + 5) + 2 * PAD;
    const inside = isOpen ? node.children.map(measure) : [];
    let width = Math.max(own, ...lines.map((line) => LETTER * line.length + 2 * PAD)), height = HEAD + LINE * lines.length;
    if (inside.length && side(node)) {
      width = Math.max(width, inside.reduce((sum, each) => sum + each.width + GAP, 2 * PAD - GAP));
      height += Math.max(...inside.map((each) => each.height)) + PAD;
    } else if (inside.length) {
      width = Math.max(width, ...inside.map((each) => each.width + 2 * PAD));
      height += inside.reduce((sum, each) => sum + each.height + GAP, PAD - GAP);
    }
    const found = { width: Math.ceil(width), height: height + (lines.length && !inside.length ? PAD / 2 : 0), lines };
    measured.set(node, found);
    return found;
  }

  function draw(node, x, y, width) {
    const { height, lines } = measured.get(node), isOpen = open.has(node.path);
    const opens = node.children.length || node.tensors;
    const press = () => opens && onToggle(node);
    const head = svg("g", {
      class: "block-head", tabindex: 0, role: "button", "aria-expanded": opens ? String(isOpen) : null, "data-path": node.path,
      "aria-label": `${nodeName(node)}, ${node.kind}, ${node.parameters.toLocaleString("en")} parameters`,
      onclick: press, onmouseenter: () => onHover(node), onfocus: () => onHover(node),
      onkeydown: onPress(press),
    },
      svg("rect", { x, y, width, height: HEAD, fill: "transparent" }),
      svg("text", { class: "block-name", x: x + PAD, y: y + 20 }, nodeName(node), svg("tspan", { class: "block-kind", dx: 8 }, kind(node))),
      svg("text", { class: "block-count", x: x + width - PAD, y: y + 20, "text-anchor": "end" }, formatShort(node.parameters)));
    const drawn = [
      svg("rect", { class: `block ${partColour(node.kind).slice(2)}`, x, y, width, height, rx: 6 }), head,
      ...lines.map((line, index) => svg("text", { class: "block-shape", x: x + PAD, y: y + HEAD + LINE * index + 10 }, line)),
    ];
    if (!isOpen) return drawn;
    const top = y + HEAD + LINE * lines.length;
    if (side(node)) {
      const spare = (width - 2 * PAD - node.children.reduce((sum, each) => sum + measured.get(each).width + GAP, -GAP)) / node.children.length;
      let at = x + PAD;
      for (const each of node.children) {
        const wide = measured.get(each).width + spare;
        drawn.push(...draw(each, at, top, wide));
        at += wide + GAP;
      }
      return drawn;
    }
    let at = top;
    for (const each of node.children) {
      drawn.push(...draw(each, x + PAD, at, width - 2 * PAD));
      at += measured.get(each).height + GAP;
    }
    return drawn;
  }

  const { width, height } = measure(root);
  return svg("svg", { width: width + 2, height: height + 2, viewBox: `0 0 ${width + 2} ${height + 2}`, role: "group", "aria-label": `${root.name} as nested blocks` }, ...draw(root, 1, 1, width));
}
