// Neuron: one weight of a real head, from the elements of q and k to the softmax.
import { keepKnown, clampIndex } from "../address.js";
import { getPacked, post } from "../api.js";
import { buttonGroup, el, availableWidth, onThemeChange } from "../dom.js";
import { drawBands } from "../draw/bands.js";
import { signedColour } from "../draw/colours.js";
import { drawTable } from "../draw/table.js";
import { visible } from "../format.js";
import { runLong } from "../progress.js";
import { createTextForm, indexSelect } from "./explain_form.js";
import { formatNumber } from "./explain_maths.js";
import { exportButtons } from "./export.js";

const PLACES = ["layer", "head", "query", "key"];

export async function neuron(body, state, keep, runTask) {
  const picture = el("div", { class: "stack" }, el("section", { class: "panel" }, el("p", { class: "note" }, "Choose a run and a text, then press Look.")));
  const selected = { kind: state.kind ?? "", ...Object.fromEntries(PLACES.map((name) => [name, Number(state[name] ?? 0)])) };
  const { form, getRequest, problem } = await createTextForm(state, "neuron", (next) => runTask(() => load(next)));
  body.replaceChildren(el("div", { class: "columns" }, form, picture));
  let data = null, request = getRequest();
  onThemeChange(body, () => data && runTask(draw));
  if (problem) throw new Error(problem);
  if (request.text) await load(request);

  async function load(next) {
    [data, request] = [await runLong("Computing attention", (task) => post("/api/neuron", next, task)), next];
    for (const kind of data.kinds) Object.assign(kind, { rows: kind.rows.map(visible), columns: kind.columns.map(visible) });
    await draw();
  }

  async function draw() {
    const kind = data.kinds.find((each) => each.name === selected.kind) ?? data.kinds.find((each) => each.name === data.main);
    if (selected.kind) keepKnown("attention", [selected.kind], data.kinds.map((each) => each.name));
    selected.kind = kind.name;
    selected.layer = clampIndex("layer", selected.layer, kind.heads.length);
    const limits = { head: kind.heads[selected.layer], query: kind.rows.length, key: kind.columns.length };
    for (const name in limits) selected[name] = clampIndex(name, selected[name], limits[name]);
    const row = await getPacked(`/api/neuron/${data.name}/${kind.name}/${PLACES.map((name) => selected[name]).join("/")}`);
    const change = (key) => (value) => { selected[key] = value; runTask(draw); };
    const queries = el("select", { "aria-label": "Query", "data-key": "Query", onchange: (event) => change("query")(Number(event.target.value)) },
      ...kind.rows.map((token, index) => el("option", { value: index, selected: index === selected.query }, `query ${index + 1}: ${token}`)));
    const status = el("p", { class: "status", role: "status" }, "Click a key to see how its weight is computed; point at a band to see its elements.");
    const keys = row.array(row.keys), width = row.q.length;
    const onHover = (key, index) => {
      const k = key === selected.key ? row.k[index] : keys[key * width + index];
      status.textContent = `element ${index + 1}: q × k of “${kind.columns[key]}” = ${formatNumber(row.q[index], 4)} × ${formatNumber(k, 4)} = ${formatNumber(row.q[index] * k, 4)}`;
    };
    picture.replaceChildren(
      el("section", { class: "panel", "aria-label": "All keys" },
        el("div", { class: "toolbar" },
          data.kinds.length > 1 ? buttonGroup("Attention", data.kinds.map((each) => [each.name, each.name]), kind.name, change("kind")) : null,
          indexSelect("Layer", kind.heads.length, selected.layer, change("layer")), indexSelect("Head", limits.head, selected.head, change("head")), queries,
          exportButtons(() => picture.querySelector("svg"), () => ({ ...request, ...selected, tokens: kind.columns, ...row, keys: undefined, array: undefined }), "neuron")),
        el("div", { class: "canvas" }, drawBands({ ...row, query: kind.rows[selected.query], columns: kind.columns, keys }, selected.key, { onChoose: change("key"), onHover, room: availableWidth(picture, 720) }))),
      weightPanel(kind, row, selected, (index) => onHover(selected.key, index)), status);
    keep({ ...request, ...selected });
  }
}

/** The computation of the chosen weight, step by step. */
function weightPanel(kind, row, { query, key }, onHover) {
  const products = row.q.map((each, index) => each * row.k[index]), largest = Math.max(...[row.q, row.k, products].flat().map(Math.abs), 1e-9);
  const shade = signedColour(), isMasked = row.masked[key] ?? false;
  const elements = drawTable("Element by element", [row.q, row.k, products], {
    rows: ["q", "k", "q × k"], columns: row.q.map((_, index) => String(index + 1)), cell: (value) => value.toFixed(2).replace("-", "−"), shade: (value) => shade(value / largest), onHover: (_, index) => onHover(index),
  }).node;
  elements.classList.add("canvas");
  const scaled = row.dots[key] * row.scale, score = scaled + row.added[key];
  const total = row.dots.reduce((sum, dot, index) => sum + (row.masked[index] ? 0 : Math.exp(dot * row.scale + row.added[index])), 0);
  const line = (...parts) => el("li", {}, ...parts);
  const formula = (text) => el("span", { class: "formula" }, text);
  return el("section", { class: "panel", "aria-label": "One weight" },
    el("h2", {}, `“${kind.rows[query]}” attends to “${kind.columns[key]}” with weight ${row.weights[key].toFixed(4)}`),
    row.exact ? el("p", { class: "note" }, "This layer approximates attention; shown is exact softmax attention on its queries and keys.") : null,
    elements,
    el("ol", { class: "steps" },
      row.score_mods.edit_qk.length ? line(`q and k were changed first (${row.score_mods.edit_qk.join(", ")}).`) : null,
      line("The sum of the products is ", formula(`q·k = ${formatNumber(row.dots[key], 4)}`)),
      line("scaled: ", formula(`× ${formatNumber(row.scale, 4)} = ${formatNumber(scaled, 4)}`), Math.abs(row.scale - row.q.length ** -0.5) < 1e-6 ? ` (1/√${row.q.length})` : ""),
      row.score_mods.bias.length + row.score_mods.edit_scores.length ? line(`${[...row.score_mods.bias, ...row.score_mods.edit_scores].join(" and ")} adds `, formula(`${formatNumber(row.added[key], 4)}: ${formatNumber(score, 4)}`)) : null,
      isMasked ? line(`${row.score_mods.mask.join(" or ")} masks this key: −∞ is added, and its weight is 0.`)
        : line("softmax: ", formula(`exp(${formatNumber(score, 4)}) / Σ exp = ${formatNumber(Math.exp(score), 4)} / ${formatNumber(total, 4)} = ${formatNumber(Math.exp(score) / total, 4)}`)),
      row.score_mods.edit_weights.length ? line(`${row.score_mods.edit_weights.join(" and ")} changes the weights after the softmax, to `, formula(row.weights[key].toFixed(4))) : null));
}
