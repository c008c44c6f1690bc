// What is shown, to take away: copied, as SVG, PNG or JSON, or as a page of its own.
import { colour, el, say, svg } from "../dom.js";

const STYLES = ["font", "fill", "fill-opacity", "stroke", "opacity", "stroke-opacity", "stroke-width", "stroke-dasharray", "color"];
const SCALE = 2; // pixels of a PNG for one of the page
const GAP = 16;

/** A copy of a figure with the page's styles written into it. */
function styled(figure) {
  const copy = figure.cloneNode(true);
  const originals = [figure, ...figure.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((node, place) => {
    const style = getComputedStyle(node);
    for (const name of STYLES) copies[place].style.setProperty(name, style.getPropertyValue(name));
    for (const name of ["tabindex", "data-key", "role", "fill", "stroke"]) copies[place].removeAttribute(name); // nothing to press, and colours are styles by now
  });
  return copy;
}

/** One drawing of several, below each other, on the page's ground. */
export function standalone(figures) {
  const sizes = figures.map((figure) => [Number(figure.getAttribute("width")), Number(figure.getAttribute("height"))]);
  const width = Math.max(...sizes.map(([wide]) => wide)), height = sizes.reduce((sum, [, high]) => sum + high + GAP, -GAP);
  const whole = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, svg("rect", { width, height, fill: colour("--raised") }));
  let top = 0;
  figures.forEach((figure, place) => {
    const copy = styled(figure);
    copy.setAttribute("y", top);
    whole.append(copy);
    top += sizes[place][1] + GAP;
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

/** Programs that take pictures get the PNG, those that take text the SVG. */
async function copy(drawing) {
  if (!navigator.clipboard?.write) throw new Error("browsers copy from this machine's own pages and from https alone; save the file instead");
  const text = new Blob([drawing], { type: "text/plain" });
  await navigator.clipboard.write([new ClipboardItem({ "image/png": png(drawing), "text/plain": text })])
    .catch(() => { throw new Error("the browser did not allow copying; save the file instead"); });
}

/** A page that needs no studio: the figures in the theme that they were seen in, and their numbers. */
function page(figures, data, name) {
  const written = new DOMParser().parseFromString("<!doctype html><html lang='en'><head><meta charset='utf-8'></head><body></body></html>", "text/html");
  const add = (parent, tag, text) => parent.appendChild(Object.assign(written.createElement(tag), { textContent: text }));
  add(written.head, "title", name);
  add(written.head, "style", `body { margin: 2rem; font-family: system-ui, sans-serif; background: ${colour("--paper")}; color: ${colour("--ink")}; } svg { max-width: 100%; height: auto; } pre { white-space: pre-wrap; }`);
  add(written.body, "h1", document.title);
  for (const figure of figures) {
    const drawn = new DOMParser().parseFromString(standalone([figure]), "image/svg+xml").documentElement;
    add(written.body, "p", "").append(written.importNode(drawn, true));
  }
  const numbers = add(written.body, "details", "");
  add(numbers, "summary", "Numbers");
  add(numbers, "pre", JSON.stringify(data, null, 1));
  return `<!doctype html>\n${written.documentElement.outerHTML}\n`;
}

/** `figure`: one or several; `whole`: the page, where the server writes a better one than the figures alone. */
export function saver(figure, data, name, whole = null) {
  const figures = () => [figure()].flat().filter(Boolean);
  const drawing = () => {
    const found = figures();
    if (!found.length) throw new Error("there is nothing to take away yet");
    return standalone(found);
  };
  const ways = {
    Copy: async () => { await copy(drawing()); say("copied"); },
    SVG: () => save(new Blob([drawing()], { type: "image/svg+xml" }), `${name}.svg`),
    PNG: async () => save(await png(drawing()), `${name}.png`),
    HTML: async () => save(new Blob([whole ? await whole() : page(figures(), data(), name)], { type: "text/html" }), `${name}.html`),
    JSON: () => save(new Blob([JSON.stringify(data(), null, 1)], { type: "application/json" }), `${name}.json`),
  };
  const act = (way) => async () => {
    group.querySelector(".problem")?.remove();
    try { await way(); } catch (error) { group.append(el("span", { class: "problem", role: "alert" }, error.message)); }
  };
  const group = el("div", { class: "row take", role: "group", "aria-label": "Take away" },
    ...Object.entries(ways).map(([label, way]) => el("button", { type: "button", "data-key": `${name}: ${label}`, onclick: act(way) }, label)));
  return group;
}
