// Attention as lines from queries on the left to keys on the right (after BertViz's head view).
import { onPress, addRovingFocus, svg } from "../dom.js";
import { headColour } from "./colours.js";

const STEP = 20, MAX_LINES = 3000, MIN_WEIGHT = 0.01, BINS = 1000;

/** `maps`: [{ head, weights }] with weights a Float32Array of rows x columns; `pinned`: the row whose lines alone are
 * shown; `onPin(row)` is called when it changes, `onHover(row)` with the row under the pointer, or null. */
export function drawHeads(rows, columns, maps, { pinned = null, onPin = () => {}, onHover = () => {}, room = 480 } = {}) {
  const maxLetters = room < 480 ? 12 : 24, widest = (tokens) => Math.max(40, ...tokens.map((token) => 8 * Math.min(token.length, maxLetters)));
  const left = widest(rows) + 16, right = widest(columns) + 24, gap = Math.max(90, Math.min(380, room - left - right)), width = left + gap + right;
  const height = STEP * Math.max(rows.length, columns.length) + 16;
  const y = (index) => 14 + STEP * index;
  const links = largestLinks(columns.length, maps);
  const lines = svg("g", { class: "links" });
  const drawn = links.kept.map(({ row, column, weight, head }) => {
    // Offset the heads, so that none hides another where they agree.
    const aside = Math.min(2, 10 / maps.length) * (head.lane - (maps.length - 1) / 2);
    const from = y(row) + aside, to = y(column) + aside, middle = left + gap / 2;
    const path = svg("path", {
      d: `M${left + 6} ${from}C${middle} ${from} ${middle} ${to} ${left + gap - 6} ${to}`,
      stroke: headColour(head.number), "stroke-opacity": Math.min(1, weight), "stroke-width": 0.6 + (maps.length > 1 ? 1.4 : 2.4) * weight,
    });
    lines.append(path);
    return { row, path };
  });
  const tokens = rows.map((token, row) => {
    const [shine, rest] = [() => highlight(row), () => highlight(pinned)];
    const press = () => {
      pinned = pinned === row ? null : row;
      tokens.forEach((each, index) => each.setAttribute("aria-pressed", String(index === pinned)));
      onPin(pinned);
      highlight(pinned);
    };
    return tokenText(token, maxLetters, left, y(row), "end", {
      onmouseenter: shine, onfocus: shine, onmouseleave: rest, onblur: rest, onclick: press, onkeydown: onPress(press),
      role: "button", "aria-pressed": String(row === pinned), "aria-label": `${token}: show only its lines`,
    });
  });
  addRovingFocus(tokens.map((token) => [token]));
  const keys = columns.map((token, column) => tokenText(token, maxLetters, left + gap, y(column), "start"));

  function highlight(row) {
    for (const link of drawn) link.path.setAttribute("visibility", row === null || link.row === row ? "visible" : "hidden");
    tokens.forEach((token, index) => token.classList.toggle("dim", row !== null && index !== row));
    onHover(row);
  }
  const figure = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Lines between tokens" },
    lines, ...tokens, ...keys);
  if (pinned !== null) highlight(pinned);
  return { figure, left: links.left };
}

/** The largest weights. A histogram finds the threshold, so that only few of millions of weights are sorted. */
function largestLinks(columns, maps) {
  const bins = new Uint32Array(BINS + 1), step = (weight) => Math.max(0, Math.min(BINS, Math.floor(weight * BINS)));
  for (const { weights } of maps) for (const weight of weights) if (weight >= MIN_WEIGHT) bins[step(weight)]++;
  const count = bins.reduce((sum, each) => sum + each, 0);
  let lowest = BINS;
  for (let above = bins[BINS]; above < MAX_LINES && lowest > 0;) above += bins[--lowest];
  const candidates = [];
  maps.forEach(({ head, weights }, lane) => weights.forEach((weight, index) => {
    if (weight >= MIN_WEIGHT && step(weight) >= lowest) candidates.push({ row: Math.floor(index / columns), column: index % columns, weight, head: { number: head, lane } });
  }));
  const kept = candidates.sort((a, b) => b.weight - a.weight).slice(0, MAX_LINES).reverse();
  const left = count > MAX_LINES ? `only the ${MAX_LINES.toLocaleString("en")} largest of ${count.toLocaleString("en")} weights are drawn` : "weights below 1 % are not drawn";
  return { kept, left };
}

const tokenText = (text, maxLetters, x, y, anchor, settings = {}) =>
  svg("text", { x, y: y + 4, "text-anchor": anchor, class: "token", ...settings },
    svg("title", {}, text), text.length > maxLetters ? `${text.slice(0, maxLetters - 1)}…` : text);
