// What is shown, to take away: SVG, PNG, JSON.
import { el } from "../dom.js";

const STYLES = ["font", "fill", "stroke", "opacity", "stroke-opacity", "stroke-width", "color"];

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

export function saver(figure, data, name) {
  const button = (label, act) => el("button", { type: "button", onclick: act }, label);
  return el("div", { class: "row", role: "group", "aria-label": "Take away" },
    button("SVG", () => figure() && save(new Blob([standalone(figure())], { type: "image/svg+xml" }), `${name}.svg`)),
    button("PNG", () => figure() && png(figure(), name)),
    button("JSON", () => save(new Blob([JSON.stringify(data(), null, 1)], { type: "application/json" }), `${name}.json`)));
}
