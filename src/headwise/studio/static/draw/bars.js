// Bar charts of probabilities: of the next token, and of output tokens before and after an ablation.
import { onPress, svg } from "../dom.js";
import { formatPercent, visible } from "../format.js";

const ROW = 26, LEFT = 88, RIGHT = 72;
const truncate = (label, most) => (label.length > most ? `${label.slice(0, most - 1)}…` : label);

/** `rows`: [{ label, share }] within `width`; a click or Enter chooses one. */
export function drawBars(rows, onChoose, onHover = () => {}, width = 390) {
  const barWidth = width - LEFT - RIGHT, height = ROW * rows.length + 4;
  const groups = rows.map(({ label, share }, row) => {
    const y = ROW * row + 2, name = visible(label);
    return svg("g", {
      class: share > 0 ? "odds" : "odds out", role: "button", tabindex: 0, "data-key": `bar-${row}`, "aria-label": `write ${name}, probability ${share.toFixed(4)}`,
      onclick: () => onChoose(row), onkeydown: onPress(() => onChoose(row)), onmouseenter: () => onHover(row), onfocus: () => onHover(row),
    },
    svg("rect", { class: "odds-room", x: 0, y, width, height: ROW - 2, rx: 4 }),
    svg("text", { class: "token", x: LEFT - 8, y: y + 16, "text-anchor": "end" }, truncate(name, 10)),
    svg("rect", { class: "odds-share", x: LEFT, y: y + 4, width: Math.max(share > 0 ? 1 : 0, barWidth * share), height: ROW - 10, rx: 2 }),
    svg("text", { class: "tick", x: LEFT + barWidth * share + 8, y: y + 16 }, formatPercent(share)));
  });
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Candidates for the next token", onmouseleave: () => onHover(null) }, ...groups);
}

const STEP = 54, HIGH = 110;

/** `tokens`: [{ label, before, after }] with probabilities 0..1, side by side; without an ablation `after` is null. */
export function drawPairedBars(tokens, onHover = () => {}) {
  const width = Math.max(120, STEP * tokens.length + 8), height = HIGH + 34;
  const bar = (x, share, kind) => svg("rect", { class: kind, x, y: 8 + HIGH * (1 - share), width: 16, height: Math.max(0.5, HIGH * share), rx: 2 });
  const groups = tokens.map(({ label, before, after }, index) => {
    const x = STEP * index + 8;
    return svg("g", { class: "odds", tabindex: 0, role: "img", "aria-label": `${visible(label)}: ${before.toFixed(4)}${after === null ? "" : ` before, ${after.toFixed(4)} after`}`, onmouseenter: () => onHover(index), onfocus: () => onHover(index) },
      svg("rect", { class: "odds-room", x: x - 4, y: 2, width: STEP - 4, height: height - 4, rx: 4 }),
      bar(x + (after === null ? 12 : 3), before, "odds-share"), after === null ? null : bar(x + 22, after, "odds-after"),
      svg("line", { class: "odds-base", x1: x - 2, x2: x + 43, y1: 8.5 + HIGH, y2: 8.5 + HIGH }),
      svg("text", { class: "token", x: x + 20, y: HIGH + 27, "text-anchor": "middle" }, truncate(visible(label), 6)));
  });
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Probability of each token", onmouseleave: () => onHover(null) }, ...groups);
}
