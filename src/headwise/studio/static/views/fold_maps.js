// Maps of a folded chain: pairs of residues (distances, contacts, errors), and attention by kind, layer, head and line.
import { clampIndex } from "../address.js";
import { getPacked } from "../api.js";
import { availableWidth, buttonGroup, el, keepFocus } from "../dom.js";
import { weightColour } from "../draw/colours.js";
import { drawMatrix } from "../draw/matrix.js";
import { indexSelect } from "./explain_form.js";
import { exportButtons } from "./export.js";
import { meanMap, toRows } from "./look_notes.js";

const UNKNOWN = [140, 140, 136];

/** A map of all pairs of residues, chosen by name. `choose(residue)` points at the residue of the row, or at none. */
export function createPairPanel(chosen, remember) {
  const panel = el("section", { class: "panel", "aria-label": "Pairs of residues", hidden: true });
  let result = null, choose = () => {};

  function draw() {
    chosen.map = clampIndex("map", chosen.map, result.maps.length);
    const map = result.maps[chosen.map], values = result.array(map.values), names = residues(result.sequence);
    const share = (value) => (value - map.low) / (map.high - map.low), scale = weightColour();
    const shade = (value) => (value < -0.5 ? UNKNOWN : scale(map.small_is_dark ? 1 - share(value) : share(value)));
    const note = el("p", { class: "note" }), rest = `${map.name}: ${map.low} to ${map.high} ${map.unit}, ${map.small_is_dark ? "small" : "large"} values strong`;
    const describe = (spot) => {
      choose(spot ? spot.row : null);
      note.replaceChildren(...(spot ? [el("b", {}, `${names[spot.row]}, ${names[spot.column]}`), ` ${spot.weight < -0.5 ? "not known" : `${spot.weight.toFixed(2)} ${map.unit}`}`] : [rest]));
    };
    const { figure } = drawMatrix(names, names, values, describe, { shade, label: map.name, room: availableWidth(panel, 460, 40) });
    const select = el("select", { "aria-label": "Map", "data-key": "Map", onchange: (event) => { chosen.map = Number(event.target.value); redraw(); } },
      ...result.maps.map((each, index) => el("option", { value: index, selected: index === chosen.map }, each.name)));
    panel.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Pairs of residues"), select,
      exportButtons(() => figure, () => ({ map: map.name, unit: map.unit, sequence: result.sequence, values: toRows(values, names.length) }), "pairs")), el("div", { class: "canvas" }, figure), note);
    describe(null);
  }

  function redraw() {
    remember();
    keepFocus(panel, draw);
  }

  return { panel, show: (next, point) => { [result, choose] = [next, point]; draw(); } };
}

const residues = (sequence) => [...sequence].map((letter, index) => `${letter}${index + 1}`);

/** Attention of one kind and layer: the mean of the heads or one, the mean over lines (rows or residues) or one. */
export function createAttentionPanel(chosen, remember) {
  const panel = el("section", { class: "panel", "aria-label": "Attention", hidden: true });
  let result = null, turns = 0;

  async function draw() {
    if (!result.attention.length) {
      panel.replaceChildren(el("h2", {}, "Attention"), el("p", { class: "note" }, "This model is a convolutional network: it has no attention."));
      return;
    }
    const kind = result.attention.find((each) => each.name === chosen.kind) ?? result.attention.find((each) => each.name === "starting") ?? result.attention[0];
    chosen.kind = kind.name;
    const number = (name, count, otherwise) => (chosen[name] === "" ? otherwise : (chosen[name] = clampIndex(name, Number(chosen[name]), count)));
    const layer = number("layer", kind.layers, kind.layers - 1), head = number("head", kind.heads, -1), line = kind.line ? number("line", kind.lines, -1) : -1;
    const turn = ++turns, packed = await getPacked(`/api/fold/${result.name}/${kind.name}/${layer}?line=${line}`);
    if (turn !== turns) return;
    const all = packed.array(packed.weights), size = kind.tokens.length ** 2;
    const maps = Array.from({ length: kind.heads }, (_, index) => all.subarray(index * size, (index + 1) * size));
    const weights = head < 0 ? meanMap(maps, size) : maps[head], most = weights.reduce((best, each) => Math.max(best, each), 1e-9), scale = weightColour();
    const note = el("p", { class: "note" }), rest = `Queries down, keys across; the largest weight is ${most.toFixed(3)}. ${HINTS[kind.name]}`;
    const describe = (spot) => note.replaceChildren(...(spot ? [el("b", {}, kind.tokens[spot.row]), " attends to ", el("b", {}, kind.tokens[spot.column]), ` with weight ${spot.weight.toFixed(4)}`] : [rest]));
    const { figure } = drawMatrix(kind.tokens, kind.tokens, weights, describe, { shade: (value) => scale(value / most), label: kind.title, room: availableWidth(panel, 460, 60) });
    panel.replaceChildren(toolbar(kind, layer, head, line, figure, weights), el("div", { class: "canvas" }, figure), note);
    describe(null);
  }

  function toolbar(kind, layer, head, line, figure, weights) {
    const set = (key) => (value) => { chosen[key] = value; redraw(); };
    const kinds = el("select", { "aria-label": "Kind", "data-key": "Kind", onchange: (event) => { Object.assign(chosen, { kind: event.target.value, layer: "", head: "", line: "" }); redraw(); } },
      ...result.attention.map((each) => el("option", { value: each.name, selected: each.name === kind.name }, each.title)));
    const heads = buttonGroup("Heads", [["", "mean"], ...Array.from({ length: kind.heads }, (_, index) => [index, String(index + 1)])], head < 0 ? "" : head, set("head"));
    const names = kind.line === "residue" ? residues(result.sequence) : Array.from({ length: kind.lines }, (_, index) => (index ? `row ${index + 1}` : "query"));
    const lines = kind.line ? el("select", { "aria-label": "Line", "data-key": "Line", onchange: (event) => set("line")(event.target.value === "" ? "" : Number(event.target.value)) },
      el("option", { value: "" }, `mean over ${kind.line}s`), ...names.map((name, index) => el("option", { value: index, selected: index === line }, name))) : null;
    return el("div", { class: "toolbar" }, el("h2", {}, "Attention"), kinds, indexSelect("Layer", kind.layers, layer, set("layer")), heads, lines,
      exportButtons(() => figure, () => ({ kind: kind.name, layer: layer + 1, head: head < 0 ? "mean" : head + 1, line: line < 0 ? "mean" : line + 1, tokens: kind.tokens, weights: toRows(weights, kind.tokens.length) }), `attention-${kind.name}`));
  }

  async function redraw() {
    remember();
    await keepFocus(panel, draw);
    remember();
  }

  return { panel, show: (next) => { result = next; return draw(); } };
}

const HINTS = {
  rows: "Each row of the alignment attends along its residues; the pairs are the bias.",
  columns: "Each column attends along the rows of the alignment.",
  starting: "Of residue i, edge i–j attends to the edges i–k; the third edge, j–k, is the bias.",
  ending: "Of residue j, edge i–j attends to the edges k–j; the third edge, k–i, is the bias.",
  points: "Residues attend to each other in space.",
};
