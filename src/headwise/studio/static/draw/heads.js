// Lines between tokens: who asks on the left, who is looked at on the right (after BertViz's head view).
import { svg } from "../dom.js";
import { headColour } from "./colours.js";

const STEP = 20, MOST = 3000, LEAST = 0.01;

/** `maps`: [{ head, weights }] with weights a Float32Array of rows x columns. */
export function heads(rows, columns, maps, { pinned = null, pin = () => {}, tell = () => {} } = {}) {
  const widest = (tokens) => Math.max(40, ...tokens.map((token) => 8 * Math.min(token.length, 24)));
  const left = widest(rows) + 16, gap = Math.max(220, 2.2 * left), width = left + gap + widest(columns) + 24;
  const height = STEP * Math.max(rows.length, columns.length) + 16;
  const y = (place) => 14 + STEP * place;
  const links = heaviest(rows.length, columns.length, maps);
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
  const tokens = rows.map((token, row) => word(token, left, y(row), "end", {
    onmouseenter: () => highlight(row), onmouseleave: () => highlight(pinned), onclick: () => { pinned = pinned === row ? null : row; pin(pinned); highlight(pinned); },
    onkeydown: (event) => { if (event.key === "Enter") event.currentTarget.dispatchEvent(new Event("click")); },
    tabindex: 0, role: "button", "aria-label": `${token}: show only its lines`,
  }));
  const keys = columns.map((token, column) => word(token, left + gap, y(column), "start"));

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

function heaviest(rows, columns, maps) {
  const found = [];
  maps.forEach(({ head, weights }, lane) => {
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const weight = weights[row * columns + column];
        if (weight >= LEAST) found.push({ row, column, weight, head: { number: head, lane } });
      }
    }
  });
  found.sort((a, b) => b.weight - a.weight);
  const kept = found.slice(0, MOST).reverse();
  const left = found.length > MOST ? `the ${MOST.toLocaleString()} heaviest of ${found.length.toLocaleString()} lines are drawn`
    : "lines below 1 % are left out";
  return { kept, left };
}

const word = (text, x, y, anchor, settings = {}) =>
  svg("text", { x, y: y + 4, "text-anchor": anchor, class: "token", ...settings },
    svg("title", {}, text), text.length > 24 ? `${text.slice(0, 23)}…` : text);
