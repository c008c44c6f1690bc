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
