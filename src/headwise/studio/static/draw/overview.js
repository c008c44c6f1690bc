// Every head of every layer as a thumbnail.
import { el } from "../dom.js";
import { ramp } from "./colours.js";

export function overview(kind, values, chosen, choose) {
  const [layers, count, rows, columns] = kind.thumbnails.shape;
  const shade = ramp(), size = rows * columns;
  const grid = el("div", { class: "thumbs" });
  grid.style.gridTemplateColumns = `auto repeat(${count}, auto)`;
  grid.append(el("span"), ...Array.from({ length: count }, (_, head) => el("span", { class: "axis" }, `${head + 1}`)));
  for (let layer = 0; layer < layers; layer++) {
    grid.append(el("span", { class: "axis" }, `layer ${layer + 1}`));
    for (let head = 0; head < count; head++) {
      if (!kind.there[layer][head]) { grid.append(el("span")); continue; }
      const canvas = el("canvas", { width: columns, height: rows });
      canvas.style.width = canvas.style.height = `${count > 8 ? 56 : 76}px`;
      const image = new ImageData(columns, rows), start = (layer * count + head) * size;
      for (let place = 0; place < size; place++) image.data.set([...shade(values[start + place]), 255], 4 * place);
      canvas.getContext("2d").putImageData(image, 0, 0);
      grid.append(el("button", {
        type: "button", "aria-label": `layer ${layer + 1}, head ${head + 1}`,
        "aria-pressed": String(layer === chosen.layer && chosen.heads.has(head)), onclick: () => choose(layer, head),
      }, canvas));
    }
  }
  return grid;
}
