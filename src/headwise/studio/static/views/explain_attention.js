// The worked example: inputs and weights to edit, and every intermediate value.
import { reportProblem } from "../address.js";
import { get } from "../api.js";
import { buttonGroup, el, onThemeChange } from "../dom.js";
import { weightColour } from "../draw/colours.js";
import { drawMatrix } from "../draw/matrix.js";
import { drawEditableTable, drawTable } from "../draw/table.js";
import { attend, dot, formatNumber, formatTerms, transpose } from "./explain_maths.js";
import { exportButtons } from "./export.js";

const PARTS = { inputs: "X", query: "W_Q", key: "W_K", value: "W_V" };
const MAX_TOKENS = 6;
const tokenName = (index) => `x${"₁₂₃₄₅₆"[index]}`;

export async function attention(body, state, keep, runTask) {
  const example = await get("/api/explain/attention");
  const now = Object.fromEntries(Object.keys(PARTS).map((part) => [part, parseRows(state[part], example[part], part === "inputs") ?? example[part].map((row) => [...row])]));
  const options = { scaled: state.scaled !== "0", causal: state.causal === "1" };
  const inputsPanel = el("section", { class: "panel", "aria-label": "Inputs and weights" }), results = el("div", { class: "stack" });
  const status = el("p", { class: "status", role: "status" });
  let head = null;
  body.replaceChildren(el("div", { class: "stack" }, inputsPanel, results, status));
  drawInputs();
  onThemeChange(body, drawInputs);

  function drawInputs() {
    const names = now.inputs.map((_, index) => tokenName(index));
    const tables = Object.entries(PARTS).map(([part, name]) =>
      drawEditableTable(name, now[part], (i, j, value) => { now[part][i][j] = value; drawResults(); }, { rows: part === "inputs" ? names : [] }).node);
    const button = (label, act, off) => el("button", { type: "button", "data-key": label, onclick: () => runTask(() => { act(); drawInputs(); }), disabled: off }, label);
    const change = (key) => (value) => runTask(() => { options[key] = value; drawInputs(); });
    inputsPanel.replaceChildren(
      el("div", { class: "toolbar" },
        buttonGroup("Scale", [[true, "divided by √d"], [false, "not scaled"]], options.scaled, change("scaled")),
        buttonGroup("Mask", [[false, "no mask"], [true, "causal mask"]], options.causal, change("causal")),
        el("div", { class: "row", role: "group", "aria-label": "Tokens" },
          button("Add a token", () => now.inputs.push(now.inputs[0].map(() => 0)), now.inputs.length >= MAX_TOKENS),
          button("Remove the last", () => now.inputs.pop(), now.inputs.length <= 2),
          button("Reset", () => { for (const part in PARTS) now[part] = example[part].map((row) => [...row]); })),
        exportButtons(() => results.querySelector("svg"), () => ({ tokens: names, ...now, ...options, ...head }), "attention")),
      el("div", { class: "flow" }, ...tables));
    drawResults();
  }

  /** Compute and draw all results. */
  function drawResults() {
    head = attend(now, options);
    const names = now.inputs.map((_, index) => tokenName(index)), width = head.queries[0].length;
    const divisor = options.scaled ? ` / √${width}` : "", shade = weightColour();
    const shown = (name, values, explain, settings = {}) =>
      drawTable(name, values, { rows: names, cell: formatNumber, onHover: (i, j) => { status.textContent = explain(i, j); }, ...settings }).node;
    const projection = (name, values, part) => shown(`${name} = X ${PARTS[part]}`, values, (i, j) => {
      const column = transpose(now[part])[j];
      return `${name}(${names[i]}, ${j + 1}) = row ${names[i]} of X · column ${j + 1} of ${PARTS[part]} = ${formatTerms(now.inputs[i], column)} = ${formatNumber(values[i][j], 4)}`;
    });
    results.replaceChildren(
      panel("Each input is projected three times", projection("Q", head.queries, "query"), projection("K", head.keys, "key"), projection("V", head.values, "value")),
      el("div", { class: "two" }, panel("The score of each query with each key, and the softmax of each row",
        shown(`S = Q Kᵀ${divisor}`, head.scores, score, { columns: names }),
        shown("softmax(S), each row sums to 1", head.weights, weight, { columns: names, shade, cell: (each) => formatNumber(each, 4) })),
      panel("Each output is the weighted mean of the values",
        el("div", {}, drawMatrix(names, names, Float32Array.from(head.weights.flat()), (spot) => { if (spot) status.textContent = weight(spot.row, spot.column); }).figure),
        shown("softmax(S) V", head.outputs, output, { cell: (each) => formatNumber(each, 4) }))));
    status.textContent = "Point at a number, or go to it with Tab and the arrow keys, to see how it is computed.";
    keep({ scaled: options.scaled ? "" : "0", causal: options.causal ? "1" : "", ...Object.fromEntries(Object.keys(PARTS).map((part) => [part, formatRows(now[part], example[part])])) });

    function score(i, j) {
      if (head.scores[i][j] === -Infinity) return `${names[j]} comes after ${names[i]}: the causal mask adds −∞`;
      const raw = dot(head.queries[i], head.keys[j]);
      const scaled = options.scaled ? `, and ${formatNumber(raw)} / √${width} = ${formatNumber(head.scores[i][j], 4)}` : "";
      return `S(${names[i]}, ${names[j]}) = query of ${names[i]} · key of ${names[j]} = ${formatTerms(head.queries[i], head.keys[j])} = ${formatNumber(raw)}${scaled}`;
    }
    function weight(i, j) {
      const powers = head.scores[i].map((each) => `exp(${formatNumber(each)})`);
      return `weight(${names[i]}, ${names[j]}) = ${powers[j]} / (${powers.join(" + ")}) = ${formatNumber(head.weights[i][j], 4)}`;
    }
    function output(i, j) {
      const column = transpose(head.values)[j];
      return `output(${names[i]}, ${j + 1}) = weights of ${names[i]} · column ${j + 1} of V = ${formatTerms(head.weights[i], column)} = ${formatNumber(head.outputs[i][j], 4)}`;
    }
  }
}

const panel = (title, ...tables) => el("section", { class: "panel" }, el("h2", {}, title), el("div", { class: "flow" }, ...tables));

const rowsOf = (values) => values.map((row) => row.join(",")).join(";");
const formatRows = (values, example) => (rowsOf(values) === rowsOf(example) ? "" : rowsOf(values));

/** Parse rows from the URL; their shape must be that of the example, except for the number of inputs. */
function parseRows(text, example, anyCount) {
  const rows = (text ?? "").split(";").map((row) => row.split(",").map(Number));
  const countFits = anyCount ? rows.length >= 2 && rows.length <= MAX_TOKENS : rows.length === example.length;
  if (countFits && rows.every((row) => row.length === example[0].length && row.every(Number.isFinite))) return rows;
  if (text) reportProblem(`${text.slice(0, 60)} does not have the shape of its table, so the default is shown.`);
  return null;
}
