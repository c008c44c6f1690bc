// One model of the catalogue: its blocks, and what it costs.
import { get } from "../api.js";
import { el } from "../dom.js";
import { blocks, formula, opened, prepared } from "../draw/blocks.js";
import { short } from "../draw/plot.js";
import { saver } from "./saving.js";

const whole = (number) => number.toLocaleString("en");

export function bytes(number) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (number < 1024) return `${Number(number.toPrecision(3))} ${unit}`;
    number /= 1024;
  }
  return `${Number(number.toPrecision(3))} TiB`;
}

export const address = (name, what) => `/api/catalogue/${encodeURIComponent(name)}/${what}`;

export async function model(panel, name, { add, within }) {
  const found = await get(address(name, "structure"));
  const root = prepared(found.tree), open = opened(root);
  const drawing = el("div", { class: "canvas" }), note = el("p", { class: "note" }), figures = el("dl", { class: "figures" });
  const adding = el("button", { type: "button", "aria-pressed": String(within()), onclick: async () => { adding.setAttribute("aria-pressed", String(!within())); await add(); } }, "Keep in the cost plot");
  const resting = "Point at a block to see how its parameters add up; click it to open or close it.";

  function draw() {
    const tell = (node) => note.replaceChildren(el("b", {}, node.path), ` (${node.kind}): `, el("span", { class: "formula" }, formula(node)), node.repeats ? `, ${node.repeats} times` : "");
    const toggle = (node) => {
      if (!open.delete(node.path)) open.add(node.path);
      draw();
      drawing.querySelector(`[data-path="${CSS.escape(node.path)}"]`).focus({ preventScroll: true });
    };
    drawing.replaceChildren(blocks(root, { open, toggle, tell, across: drawing.clientWidth > 600 }));
  }

  const take = saver(() => drawing.querySelector("svg"), () => ({ ...found, cost: spent }), name);
  let spent = null;
  panel.replaceChildren(
    el("h2", {}, found.name), el("p", { class: "note top" }, `${found.paper} (${found.year})`),
    el("div", { class: "toolbar" }, adding, take), drawing, note, figures);
  if (!found.counted) {
    note.textContent = "It learns by a fit of its own: there is nothing to draw before it has read a text, and its tables grow with the text.";
    return;
  }
  note.textContent = resting;
  draw();
  spent = await get(`${address(name, "cost")}?at=${found.usual}`).catch((error) => { figures.replaceChildren(el("dt", {}, "Cost"), el("dd", {}, error.message)); return null; });
  if (spent) figures.replaceChildren(...table(found, spent));
}

function table(found, spent) {
  const pictured = found.unit === "pixels";
  const unit = pictured ? `an image of ${spent.image.slice(1).join(" × ")} pixels` : `a token, with ${spent.length} of them${found.tree.kind === "EncoderDecoder" ? " a side" : ""}`;
  const words = found.words ? `${whole(found.words)} words` : `${whole(found.outputs)} outputs`;
  const lines = [
    ["Parameters", whole(spent.parameters), `with ${words}`],
    ["Forward pass", `${short(spent.flops_per_token)} FLOPs`, `for ${unit}: two for each multiplication that the model makes`],
    ["Training memory", bytes(spent.training_bytes), `16 bytes × ${whole(spent.parameters)}: weights, gradients and two Adam moments`],
    ["Activations", bytes(spent.activation_bytes), `kept for the backward pass of each ${pictured ? "image" : `text of ${spent.length} tokens`}`],
    ["Decoding memory", bytes(spent.decoding_bytes), `4 bytes × ${whole(spent.parameters)}`],
    ...(spent.cache_bytes_per_token ? [["Cache", bytes(spent.cache_bytes_per_token), "keys and values of each token that is written"]] : []),
  ];
  return lines.flatMap(([name, value, from]) => [el("dt", {}, name), el("dd", {}, el("b", {}, value), el("span", { class: "quiet" }, ` ${from}`))]);
}
