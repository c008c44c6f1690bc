// What is shown, to take away: SVG, PNG, JSON, or a page of its own.
import { colour, el } from "../dom.js";

const STYLES = ["font", "fill", "fill-opacity", "stroke", "opacity", "stroke-opacity", "stroke-width", "color"];

/** A copy of a figure with the page's styles written into it. */
export function standalone(figure) {
  const copy = figure.cloneNode(true);
  const originals = [figure, ...figure.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((node, place) => {
    const style = getComputedStyle(node);
    for (const name of STYLES) copies[place].style.setProperty(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}

function save(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function png(figure, name) {
  const image = new Image(), scale = 2;
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(figure))}`;
  await image.decode();
  const canvas = el("canvas", { width: scale * image.width, height: scale * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => save(blob, `${name}.png`));
}

/** A page that needs no studio: the figures in the theme that they were seen in, and their numbers. */
function page(figures, data, name) {
  const written = new DOMParser().parseFromString("<!doctype html><html lang='en'><head><meta charset='utf-8'></head><body></body></html>", "text/html");
  const add = (parent, tag, text) => parent.appendChild(Object.assign(written.createElement(tag), { textContent: text }));
  add(written.head, "title", name);
  add(written.head, "style", `body { margin: 2rem; font-family: system-ui, sans-serif; background: ${colour("--paper")}; color: ${colour("--ink")}; } svg { max-width: 100%; height: auto; } pre { white-space: pre-wrap; }`);
  add(written.body, "h1", document.title);
  for (const figure of figures) {
    const drawn = new DOMParser().parseFromString(standalone(figure), "image/svg+xml").documentElement;
    add(written.body, "p", "").append(written.importNode(drawn, true));
  }
  const numbers = add(written.body, "details", "");
  add(numbers, "summary", "Numbers");
  add(numbers, "pre", JSON.stringify(data, null, 1));
  return `<!doctype html>\n${written.documentElement.outerHTML}\n`;
}

/** `figure`: one or several; `whole`: the page, where the server writes a better one than the figures alone. */
export function saver(figure, data, name, whole = null) {
  const button = (label, act) => el("button", { type: "button", onclick: act }, label);
  const figures = () => [figure()].flat().filter(Boolean);
  const each = (act) => () => figures().forEach((one, place, every) => act(one, every.length > 1 ? `${name}-${place + 1}` : name));
  const html = async () => save(new Blob([whole ? await whole() : page(figures(), data(), name)], { type: "text/html" }), `${name}.html`);
  return el("div", { class: "row", role: "group", "aria-label": "Take away" },
    button("SVG", each((one, called) => save(new Blob([standalone(one)], { type: "image/svg+xml" }), `${called}.svg`))),
    button("PNG", each(png)),
    button("HTML", html),
    button("JSON", () => save(new Blob([JSON.stringify(data(), null, 1)], { type: "application/json" }), `${name}.json`)));
}
