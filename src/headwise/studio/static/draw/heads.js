// Lines between tokens: who asks on the left, who is looked at on the right (after BertViz's head view).
import { pressed, roving, svg } from "../dom.js";
import { headColour } from "./colours.js";

const STEP = 20, MOST = 3000, LEAST = 0.01, STEPS = 1000;

/** `maps`: [{ head, weights }] with weights a Float32Array of rows x columns; `pinned`: the row whose lines stay alone,
 * `pin(row)` hears of another; `tell(row)` of the one under the pointer, or of null. */
export function heads(rows, columns, maps, { pinned = null, pin = () => {}, tell = () => {}, room = 480 } = {}) {
  const letters = room < 480 ? 12 : 24, widest = (tokens) => Math.max(40, ...tokens.map((token) => 8 * Math.min(token.length, letters)));
  const left = widest(rows) + 16, right = widest(columns) + 24, gap = Math.max(90, Math.min(380, room - left - right)), width = left + gap + right;
  const height = STEP * Math.max(rows.length, columns.length) + 16;
  const y = (place) => 14 + STEP * place;
  const links = heaviest(columns.length, maps);
  const lines = svg("g", { class: "links" });
  const drawn = links.kept.map(({ row, column, weight, head }) => {
    // Heads beside each other, so that none hides another where they agree.
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
      tokens.forEach((each, place) => each.setAttribute("aria-pressed", String(place === pinned)));
      pin(pinned);
      highlight(pinned);
    };
    return word(token, letters, left, y(row), "end", {
      onmouseenter: shine, onfocus: shine, onmouseleave: rest, onblur: rest, onclick: press, onkeydown: pressed(press),
      role: "button", "aria-pressed": String(row === pinned), "aria-label": `${token}: show only its lines`,
    });
  });
  roving(tokens.map((token) => [token]));
  const keys = columns.map((token, column) => word(token, letters, left + gap, y(column), "start"));

  function highlight(row) {
    for (const link of drawn) link.path.setAttribute("visibility", row === null || link.row === row ? "visible" : "hidden");
    tokens.forEach((token, place) => token.classList.toggle("dim", row !== null && place !== row));
    tell(row);
  }
  const figure = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Lines between tokens" },
    lines, ...tokens, ...keys);
  if (pinned !== null) highlight(pinned);
  return { figure, left: links.left };
}

/** Of millions of weights only those that can be among the heaviest become lines to sort. */
function heaviest(columns, maps) {
  const bins = new Uint32Array(STEPS + 1), step = (weight) => Math.max(0, Math.min(STEPS, Math.floor(weight * STEPS)));
  for (const { weights } of maps) for (const weight of weights) if (weight >= LEAST) bins[step(weight)]++;
  const count = bins.reduce((sum, each) => sum + each, 0);
  let lowest = STEPS;
  for (let above = bins[STEPS]; above < MOST && lowest > 0;) above += bins[--lowest];
  const found = [];
  maps.forEach(({ head, weights }, lane) => weights.forEach((weight, place) => {
    if (weight >= LEAST && step(weight) >= lowest) found.push({ row: Math.floor(place / columns), column: place % columns, weight, head: { number: head, lane } });
  }));
  const kept = found.sort((a, b) => b.weight - a.weight).slice(0, MOST).reverse();
  const left = count > MOST ? `the ${MOST.toLocaleString("en")} heaviest of ${count.toLocaleString("en")} lines are drawn` : "lines below 1 % are left out";
  return { kept, left };
}

const word = (text, letters, x, y, anchor, settings = {}) =>
  svg("text", { x, y: y + 4, "text-anchor": anchor, class: "token", ...settings },
    svg("title", {}, text), text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
