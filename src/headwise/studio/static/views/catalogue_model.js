// One model of the catalogue: its module tree and its cost.
import { get } from "../api.js";
import { el } from "../dom.js";
import { drawBlocks, parameterFormula, initiallyOpen, prepareTree } from "../draw/blocks.js";
import { formatShort } from "../draw/plot.js";
import { exportButtons } from "./export.js";

const formatCount = (number) => number.toLocaleString("en");

export function formatBytes(number) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (number < 1024) return `${Number(number.toPrecision(3))} ${unit}`;
    number /= 1024;
  }
  return `${Number(number.toPrecision(3))} TiB`;
}

export const catalogueUrl = (name, what) => `/api/catalogue/${encodeURIComponent(name)}/${what}`;

export async function showModel(panel, name, { add, within }) {
  const structure = await get(catalogueUrl(name, "structure"));
  const root = prepareTree(structure.tree), open = initiallyOpen(root);
  const drawing = el("div", { class: "canvas" }), note = el("p", { class: "note" }), figures = el("dl", { class: "figures" });
  const keepButton = el("button", { type: "button", "aria-pressed": String(within()), onclick: async () => { keepButton.setAttribute("aria-pressed", String(!within())); await add(); } }, "Keep in the cost plot");
  const resting = "Point at a block to see how its parameters add up; click it to open or close it.";

  function draw() {
    const onHover = (node) => note.replaceChildren(el("b", {}, node.path), ` (${node.kind}): `, el("span", { class: "formula" }, parameterFormula(node)), node.repeats ? `, ${node.repeats} times` : "");
    const toggle = (node) => {
      if (!open.delete(node.path)) open.add(node.path);
      draw();
      drawing.querySelector(`[data-path="${CSS.escape(node.path)}"]`).focus({ preventScroll: true });
    };
    drawing.replaceChildren(drawBlocks(root, { open, onToggle: toggle, onHover, sideBySide: drawing.clientWidth > 600 }));
  }

  const exports = exportButtons(() => drawing.querySelector("svg"), () => ({ ...structure, cost }), name);
  let cost = null;
  panel.replaceChildren(
    el("h2", {}, structure.name), el("p", { class: "note top" }, `${structure.paper} (${structure.year})`),
    el("div", { class: "toolbar" }, keepButton, exports), drawing, note, figures);
  if (!structure.has_parameters) {
    note.textContent = "This model is fitted without gradients: it has no parameters before it is fitted, and its tables grow with the text.";
    return;
  }
  note.textContent = resting;
  draw();
  cost = await get(`${catalogueUrl(name, "cost")}?at=${structure.default_length}`).catch((error) => { figures.replaceChildren(el("dt", {}, "Cost"), el("dd", {}, error.message)); return null; });
  if (cost) figures.replaceChildren(...table(structure, cost));
}

function table(structure, cost) {
  const isImage = structure.unit === "pixels";
  const unit = isImage ? `an image of ${cost.image.slice(1).join(" × ")} pixels` : `a token of a text of ${cost.length}${structure.tree.kind === "EncoderDecoder" ? " on each side" : ""}`;
  const outputs = structure.vocab ? `a vocabulary of ${formatCount(structure.vocab)}` : `${formatCount(structure.outputs)} outputs`;
  const lines = [
    ["Parameters", formatCount(cost.parameters), `with ${outputs}`],
    ["Forward pass", `${formatShort(cost.flops_per_token)} FLOPs`, `for ${unit}: two for each multiply-add`],
    ["Training memory", formatBytes(cost.training_bytes), `16 bytes × ${formatCount(cost.parameters)}: weights, gradients and two Adam moments`],
    ["Activations", formatBytes(cost.activation_bytes), `stored for the backward pass of each ${isImage ? "image" : `text of ${cost.length} tokens`}`],
    ["Decoding memory", formatBytes(cost.decoding_bytes), `4 bytes × ${formatCount(cost.parameters)}`],
    ...(cost.cache_bytes_per_token ? [["Cache", formatBytes(cost.cache_bytes_per_token), "KV cache of each generated token"]] : []),
  ];
  return lines.flatMap(([name, value, explanation]) => [el("dt", {}, name), el("dd", {}, el("b", {}, value), el("span", { class: "quiet" }, ` ${explanation}`))]);
}
