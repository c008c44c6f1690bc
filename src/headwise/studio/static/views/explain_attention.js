// The worked example of the lectures: inputs and weights to edit, and all that follows from them.
import { wrong } from "../address.js";
import { get } from "../api.js";
import { choice, el, themed } from "../dom.js";
import { ramp } from "../draw/colours.js";
import { matrix } from "../draw/matrix.js";
import { editable, table } from "../draw/table.js";
import { attend, dot, number, terms, transposed } from "./explain_maths.js";
import { saver } from "./saving.js";

const PARTS = { inputs: "X", query: "W_Q", key: "W_K", value: "W_V" };
const MOST = 6;
const tokenName = (place) => `x${"₁₂₃₄₅₆"[place]}`;

export async function attention(body, state, keep, work) {
  const example = await get("/api/explain/attention");
  const now = Object.fromEntries(Object.keys(PARTS).map((part) => [part, read(state[part], example[part], part === "inputs") ?? example[part].map((row) => [...row])]));
  const how = { scaled: state.scaled !== "0", causal: state.causal === "1" };
  const given = el("section", { class: "panel", "aria-label": "Inputs and weights" }), results = el("div", { class: "stack" });
  const told = el("p", { class: "told", role: "status" });
  let found = null;
  body.replaceChildren(el("div", { class: "stack" }, given, results, told));
  all();
  themed(body, all);

  function all() {
    const names = now.inputs.map((_, place) => tokenName(place));
    const tables = Object.entries(PARTS).map(([part, name]) =>
      editable(name, now[part], (i, j, value) => { now[part][i][j] = value; follow(); }, { rows: part === "inputs" ? names : [] }).node);
    const button = (label, act, off) => el("button", { type: "button", "data-key": label, onclick: () => work(() => { act(); all(); }), disabled: off }, label);
    const change = (key) => (value) => work(() => { how[key] = value; all(); });
    given.replaceChildren(
      el("div", { class: "toolbar" },
        choice("Scale", [[true, "divided by √d"], [false, "not scaled"]], how.scaled, change("scaled")),
        choice("Mask", [[false, "no mask"], [true, "causal mask"]], how.causal, change("causal")),
        el("div", { class: "row", role: "group", "aria-label": "Tokens" },
          button("Add a token", () => now.inputs.push(now.inputs[0].map(() => 0)), now.inputs.length >= MOST),
          button("Remove the last", () => now.inputs.pop(), now.inputs.length <= 2),
          button("As in the lecture", () => { for (const part in PARTS) now[part] = example[part].map((row) => [...row]); })),
        saver(() => results.querySelector("svg"), () => ({ tokens: names, ...now, ...how, ...found }), "attention")),
      el("div", { class: "flow" }, ...tables));
    follow();
  }

  /** Everything that the inputs and weights decide. */
  function follow() {
    found = attend(now, how);
    const names = now.inputs.map((_, place) => tokenName(place)), width = found.queries[0].length;
    const divisor = how.scaled ? ` / √${width}` : "", shade = ramp();
    const shown = (name, values, says, settings = {}) =>
      table(name, values, { rows: names, cell: number, tell: (i, j) => { told.textContent = says(i, j); }, ...settings }).node;
    const projected = (name, values, part) => shown(`${name} = X ${PARTS[part]}`, values, (i, j) => {
      const column = transposed(now[part])[j];
      return `${name}(${names[i]}, ${j + 1}) = row ${names[i]} of X · column ${j + 1} of ${PARTS[part]} = ${terms(now.inputs[i], column)} = ${number(values[i][j], 4)}`;
    });
    results.replaceChildren(
      panel("Every input is projected three times", projected("Q", found.queries, "query"), projected("K", found.keys, "key"), projected("V", found.values, "value")),
      el("div", { class: "two" }, panel("Every query meets every key, and each row becomes weights",
        shown(`S = Q Kᵀ${divisor}`, found.scores, score, { columns: names }),
        shown("softmax(S), each row sums to 1", found.weights, weight, { columns: names, shade, cell: (each) => number(each, 4) })),
      panel("Each output is the mean of the values with these weights",
        el("div", {}, matrix(names, names, Float32Array.from(found.weights.flat()), (spot) => { if (spot) told.textContent = weight(spot.row, spot.column); }).figure),
        shown("softmax(S) V", found.outputs, output, { cell: (each) => number(each, 4) }))));
    told.textContent = "Point at a number, or go to it with Tab and the arrow keys, to see where it comes from.";
    keep({ scaled: how.scaled ? "" : "0", causal: how.causal ? "1" : "", ...Object.fromEntries(Object.keys(PARTS).map((part) => [part, written(now[part], example[part])])) });

    function score(i, j) {
      if (found.scores[i][j] === -Infinity) return `${names[j]} comes after ${names[i]}: the causal mask adds −∞`;
      const raw = dot(found.queries[i], found.keys[j]);
      const scaled = how.scaled ? `, and ${number(raw)} / √${width} = ${number(found.scores[i][j], 4)}` : "";
      return `S(${names[i]}, ${names[j]}) = query of ${names[i]} · key of ${names[j]} = ${terms(found.queries[i], found.keys[j])} = ${number(raw)}${scaled}`;
    }
    function weight(i, j) {
      const powers = found.scores[i].map((each) => `exp(${number(each)})`);
      return `weight(${names[i]}, ${names[j]}) = ${powers[j]} / (${powers.join(" + ")}) = ${number(found.weights[i][j], 4)}`;
    }
    function output(i, j) {
      const column = transposed(found.values)[j];
      return `output(${names[i]}, ${j + 1}) = weights of ${names[i]} · column ${j + 1} of V = ${terms(found.weights[i], column)} = ${number(found.outputs[i][j], 4)}`;
    }
  }
}

const panel = (title, ...tables) => el("section", { class: "panel" }, el("h2", {}, title), el("div", { class: "flow" }, ...tables));

const rowsOf = (values) => values.map((row) => row.join(",")).join(";");
const written = (values, example) => (rowsOf(values) === rowsOf(example) ? "" : rowsOf(values));

/** Rows from an address: as wide as the example's, and as many unless there may be others. */
function read(text, example, others) {
  const rows = (text ?? "").split(";").map((row) => row.split(",").map(Number));
  const many = others ? rows.length >= 2 && rows.length <= MOST : rows.length === example.length;
  if (many && rows.every((row) => row.length === example[0].length && row.every(Number.isFinite))) return rows;
  if (text) wrong(`${text.slice(0, 60)} has not the shape of its table, so that of the lecture is shown.`);
  return null;
}
