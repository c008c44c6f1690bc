// The heads of one layer of a real run, side by side for one text.
import { keepKnown, clampIndex } from "../address.js";
import { buttonGroup, el, onThemeChange } from "../dom.js";
import { drawMatrix } from "../draw/matrix.js";
import { visible } from "../format.js";
import { createTextForm, indexSelect } from "./explain_form.js";
import { formatNumber } from "./explain_maths.js";
import { fetchLayer, fetchMaps } from "./attention_maps.js";
import { exportButtons } from "./export.js";

export async function heads(body, state, keep, runTask) {
  const picture = el("section", { class: "panel", "aria-label": "Heads" }, el("p", { class: "note" }, "Choose a run and a text, then press Look."));
  const status = el("p", { class: "status", role: "status" });
  const selected = { kind: state.kind ?? "", layer: Number(state.layer ?? 0) };
  const { form, getRequest, problem } = await createTextForm(state, "heads", (request) => runTask(() => load(request)));
  body.replaceChildren(el("div", { class: "columns" }, form, el("div", { class: "stack" }, picture, status)));
  let data = null, request = getRequest();
  onThemeChange(body, () => data && runTask(draw));
  if (problem) throw new Error(problem);
  if (request.text) await load(request);

  async function load(next) {
    [data, request] = [await fetchMaps(next, selected.kind, selected.layer), next];
    for (const kind of data.kinds) Object.assign(kind, { rows: kind.rows.map(visible), columns: kind.columns.map(visible) });
    await draw();
  }

  async function draw() {
    const kind = data.kinds.find((each) => each.name === selected.kind) ?? data.kinds.find((each) => each.name === data.main);
    if (selected.kind) keepKnown("attention", [selected.kind], data.kinds.map((each) => each.name));
    selected.kind = kind.name;
    selected.layer = clampIndex("layer", selected.layer, kind.layers);
    const weights = await fetchLayer(data, kind.name, selected.layer), size = kind.rows.length * kind.columns.length;
    const presentHeads = kind.present[selected.layer].map((isPresent, head) => (isPresent ? head : -1)).filter((head) => head >= 0);
    const map = (head) => weights.subarray(head * size, (head + 1) * size);
    status.textContent = "Point at a cell to compare its weight in all heads.";
    const onHover = (spot) => {
      if (!spot) return;
      const each = presentHeads.map((head) => `head ${head + 1}: ${formatNumber(map(head)[spot.row * kind.columns.length + spot.column], 3)}`);
      status.textContent = `${kind.rows[spot.row]} attends to ${kind.columns[spot.column]} with softmax(q·k/√d) = ${each.join(", ")}`;
    };
    const figures = presentHeads.map((head) => el("figure", {}, el("figcaption", { class: "note" }, `head ${head + 1}: ${effectiveKeys(map(head), kind)}`),
      drawMatrix(kind.rows, kind.columns, map(head), onHover, { room: 250, label: `Head ${head + 1}` }).figure));
    const change = (key) => (value) => { selected[key] = value; runTask(draw); };
    picture.replaceChildren(
      el("div", { class: "toolbar" },
        data.kinds.length > 1 ? buttonGroup("Attention", data.kinds.map((each) => [each.name, each.name]), kind.name, change("kind")) : null,
        indexSelect("Layer", kind.layers, selected.layer, change("layer")),
        exportButtons(() => [...picture.querySelectorAll("svg")], () => ({ ...request, kind: kind.name, layer: selected.layer + 1, rows: kind.rows, columns: kind.columns, heads: presentHeads.map((head) => [...map(head)]) }), "heads")),
      el("p", { class: "note formula" }, "MultiHead(x) = [head₁; head₂; …] W_O,   headₕ = softmax(Qₕ Kₕᵀ / √d) Vₕ"),
      el("div", { class: "flow" }, ...figures));
    keep({ ...request, ...selected });
  }
}

/** The effective number of keys of a head: exp of the entropy of its rows, on average. */
function effectiveKeys(weights, kind) {
  const columns = kind.columns.length;
  let total = 0;
  for (let row = 0; row < kind.rows.length; row++) {
    let entropy = 0;
    for (let column = 0; column < columns; column++) {
      const weight = weights[row * columns + column];
      if (weight > 0) entropy -= weight * Math.log(weight);
    }
    total += Math.exp(entropy);
  }
  return `about ${formatNumber(total / kind.rows.length, 1)} keys per query`;
}
