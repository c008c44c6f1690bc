// Elements from data. Text is always set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";

function filled(node, settings, children) {
  for (const [key, value] of Object.entries(settings)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, settings = {}, ...children) => filled(document.createElement(tag), settings, children);
export const svg = (tag, settings = {}, ...children) => filled(document.createElementNS(SVG, tag), settings, children);

export function field(label, control) {
  control.id ||= `f-${Math.random().toString(36).slice(2)}`;
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control);
}

/** Buttons of which one is pressed. */
export function choice(label, options, chosen, choose) {
  const group = el("div", { class: "row", role: "group", "aria-label": label });
  for (const [value, text] of options) {
    group.append(el("button", { type: "button", "data-key": `${label}: ${text}`, "aria-pressed": String(value === chosen), onclick: () => choose(value) }, text));
  }
  return group;
}

/** For what is no button but acts as one: Enter and the space bar press it. */
export const pressed = (act) => (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(event); } };

/** Where arrow keys lead, as rows and columns. */
export const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** A grid of cells that Tab reaches once, and that arrow keys go through. */
export function roving(grid) {
  const [first] = grid.flat();
  grid.forEach((row, i) => row.forEach((cell, j) => {
    cell.setAttribute("tabindex", cell === first ? 0 : -1);
    cell.addEventListener("keydown", (event) => {
      const [down, right] = ARROWS[event.key] ?? [0, 0], next = grid[i + down]?.[j + right];
      if (next && next !== cell) { event.preventDefault(); next.focus(); }
    });
  }));
}

/** Pixels across that a drawing may take within a panel, which may not be on the page yet. */
export const room = (panel, most, aside = 0) => Math.max(200, Math.min(most, (panel.clientWidth || most + aside + 34) - 34 - aside));

/** Draw anew without taking the keyboard's place away: elements keep it by their `data-key`. */
export async function refocused(view, draw) {
  const key = document.activeElement?.dataset?.key;
  await draw();
  if (key) view.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

/** Draw again at each change between dark and light, while `node` is on the page. */
export function themed(node, draw) {
  const hear = () => (node.isConnected ? draw() : removeEventListener("themed", hear));
  addEventListener("themed", hear);
}

/** What screen readers hear. */
export const say = (text) => { document.getElementById("said").textContent = text; };

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
