// DOM helpers. Text is always set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";

function fillElement(node, settings, children) {
  for (const [key, value] of Object.entries(settings)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, settings = {}, ...children) => fillElement(document.createElement(tag), settings, children);
export const svg = (tag, settings = {}, ...children) => fillElement(document.createElementNS(SVG, tag), settings, children);

export function field(label, control) {
  control.id ||= `f-${Math.random().toString(36).slice(2)}`;
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control);
}

/** A group of buttons, one of them pressed. */
export function buttonGroup(label, options, chosen, choose) {
  const group = el("div", { class: "row", role: "group", "aria-label": label });
  for (const [value, text] of options) {
    group.append(el("button", { type: "button", "data-key": `${label}: ${text}`, "aria-pressed": String(value === chosen), onclick: () => choose(value) }, text));
  }
  return group;
}

/** Key handler for elements with the role of a button: Enter and space press them. */
export const onPress = (act) => (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(event); } };

/** Arrow keys as steps of [row, column]. */
export const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Roving tabindex: Tab reaches a grid once, arrow keys move between its cells. */
export function addRovingFocus(grid) {
  const [first] = grid.flat();
  grid.forEach((row, i) => row.forEach((cell, j) => {
    cell.setAttribute("tabindex", cell === first ? 0 : -1);
    cell.addEventListener("keydown", (event) => {
      const [down, right] = ARROWS[event.key] ?? [0, 0], next = grid[i + down]?.[j + right];
      if (next && next !== cell) { event.preventDefault(); next.focus(); }
    });
  }));
}

/** Width in pixels for a drawing inside a panel, which may not be on the page yet. */
export const availableWidth = (panel, max, reserved = 0) => Math.max(200, Math.min(max, (panel.clientWidth || max + reserved + 34) - 34 - reserved));

/** Redraw and keep the keyboard focus, which is found again by `data-key`. */
export async function keepFocus(view, draw) {
  const key = document.activeElement?.dataset?.key;
  await draw();
  if (key) view.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

/** Redraw when the theme changes, while `node` is on the page. */
export function onThemeChange(node, draw) {
  const listener = () => (node.isConnected ? draw() : removeEventListener("themechange", listener));
  addEventListener("themechange", listener);
}

/** Announce a text to screen readers. */
export const announce = (text) => { document.getElementById("announcement").textContent = text; };

export const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
