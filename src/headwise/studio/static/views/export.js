// Export of figures: copy, SVG, PNG, JSON, or a stand-alone HTML page.
import { cssColour, el, announce, svg } from "../dom.js";

const STYLES = ["font", "fill", "fill-opacity", "stroke", "opacity", "stroke-opacity", "stroke-width", "stroke-dasharray", "color"];
const SCALE = 2; // PNG pixels per CSS pixel
const GAP = 16;

/** A copy of a figure with the computed styles inlined. */
function inlineStyles(figure) {
  const copy = figure.cloneNode(true);
  const originals = [figure, ...figure.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((node, index) => {
    const style = getComputedStyle(node);
    for (const name of STYLES) copies[index].style.setProperty(name, style.getPropertyValue(name));
    for (const name of ["tabindex", "data-key", "role", "fill", "stroke"]) copies[index].removeAttribute(name); // a saved figure is not interactive, and its colours are styles
  });
  return copy;
}

/** Combine figures into one SVG, below each other, with the page's background. */
export function standalone(figures) {
  const sizes = figures.map((figure) => [Number(figure.getAttribute("width")), Number(figure.getAttribute("height"))]);
  const width = Math.max(...sizes.map(([wide]) => wide)), height = sizes.reduce((sum, [, high]) => sum + high + GAP, -GAP);
  const whole = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, svg("rect", { width, height, fill: cssColour("--raised") }));
  let top = 0;
  figures.forEach((figure, index) => {
    const copy = inlineStyles(figure);
    copy.setAttribute("y", top);
    whole.append(copy);
    top += sizes[index][1] + GAP;
  });
  return new XMLSerializer().serializeToString(whole);
}

function save(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function png(drawing) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing)}`;
  await image.decode();
  const canvas = el("canvas", { width: SCALE * image.width, height: SCALE * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => { canvas.toBlob(done); });
}

/** Copy as PNG for programs that paste images, and as SVG for those that paste text. */
async function copy(drawing) {
  if (!navigator.clipboard?.write) throw new Error("browsers allow copying only on localhost and over https; save the file instead");
  const text = new Blob([drawing], { type: "text/plain" });
  await navigator.clipboard.write([new ClipboardItem({ "image/png": png(drawing), "text/plain": text })])
    .catch(() => { throw new Error("the browser did not allow copying; save the file instead"); });
}

/** A stand-alone HTML page: the figures in the current theme, and their data. */
function page(figures, data, name) {
  const doc = new DOMParser().parseFromString("<!doctype html><html lang='en'><head><meta charset='utf-8'></head><body></body></html>", "text/html");
  const add = (parent, tag, text) => parent.appendChild(Object.assign(doc.createElement(tag), { textContent: text }));
  add(doc.head, "title", name);
  add(doc.head, "style", `body { margin: 2rem; font-family: system-ui, sans-serif; background: ${cssColour("--paper")}; color: ${cssColour("--ink")}; } svg { max-width: 100%; height: auto; } pre { white-space: pre-wrap; }`);
  add(doc.body, "h1", document.title);
  for (const figure of figures) {
    const node = new DOMParser().parseFromString(standalone([figure]), "image/svg+xml").documentElement;
    add(doc.body, "p", "").append(doc.importNode(node, true));
  }
  const numbers = add(doc.body, "details", "");
  add(numbers, "summary", "Numbers");
  add(numbers, "pre", JSON.stringify(data, null, 1));
  return `<!doctype html>\n${doc.documentElement.outerHTML}\n`;
}

/** `figure`: one or several; `whole`: the page, where the server writes a better one than the figures alone. */
export function exportButtons(figure, data, name, whole = null) {
  const figures = () => [figure()].flat().filter(Boolean);
  const drawing = () => {
    const all = figures();
    if (!all.length) throw new Error("there is nothing to export yet");
    return standalone(all);
  };
  const formats = {
    Copy: async () => { await copy(drawing()); announce("copied"); },
    SVG: () => save(new Blob([drawing()], { type: "image/svg+xml" }), `${name}.svg`),
    PNG: async () => save(await png(drawing()), `${name}.png`),
    HTML: async () => save(new Blob([whole ? await whole() : page(figures(), data(), name)], { type: "text/html" }), `${name}.html`),
    JSON: () => save(new Blob([JSON.stringify(data(), null, 1)], { type: "application/json" }), `${name}.json`),
  };
  const handler = (write) => async () => {
    group.querySelector(".problem")?.remove();
    try { await write(); } catch (error) { group.append(el("span", { class: "problem", role: "alert" }, error.message)); }
  };
  const group = el("div", { class: "row export", role: "group", "aria-label": "Export" },
    ...Object.entries(formats).map(([label, write]) => el("button", { type: "button", "data-key": `${name}: ${label}`, onclick: handler(write) }, label)));
  return group;
}
