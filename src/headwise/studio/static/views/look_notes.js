// The notes of Look on a line or a cell: the weights, and links to the neuron view.
import { el } from "../dom.js";
import { visible } from "../format.js";

const MAX_KEYS = 4; // keys that the note lists

export function meanMap(maps, size) {
  const sum = new Float32Array(size);
  for (const map of maps) map.forEach((weight, index) => { sum[index] += weight / maps.length; });
  return sum;
}

/** A flat map as rows, to five decimals. */
export const toRows = (values, columns) => Array.from({ length: values.length / columns }, (_, row) =>
  Array.from(values.subarray(row * columns, (row + 1) * columns), (value) => Number(value.toFixed(5))));

/** The URL of the neuron view of a weight, for the head with the largest weight there. */
export function neuronLink({ kind, layer, maps, request }, query, key) {
  const index = query * kind.columns.length + key;
  const largest = maps.reduce((best, map) => (map.weights[index] > best.weights[index] ? map : best));
  return `#/explain?${new URLSearchParams({ topic: "neuron", ...request, kind: kind.name, layer, head: largest.head, query, key })}`;
}

const formula = (maps) => `softmax(q·k/√d)${maps.length > 1 ? `, the mean of ${maps.length} heads` : ` of head ${maps[0].head + 1}`}`;

export function describeRow(note, view, row, rest = "") {
  if (row === null) { note.textContent = rest; return; }
  const { kind, maps } = view, columns = kind.columns.length;
  const best = Array.from({ length: columns }, (_, column) => [column, view.mean[row * columns + column]]).sort((a, b) => b[1] - a[1]).slice(0, MAX_KEYS);
  note.replaceChildren(el("b", {}, visible(kind.rows[row])), " attends to ",
    ...best.flatMap(([column, weight]) => [el("a", { href: neuronLink(view, row, column), title: "See the elements of q and k" }, visible(kind.columns[column])), ` ${weight.toFixed(3)}, `]),
    el("span", { class: "formula" }, `= ${formula(maps)}`));
}

export function describeCell(note, view, spot, rest) {
  if (!spot) { note.textContent = rest; return; }
  const { kind, maps } = view;
  note.replaceChildren(el("b", {}, visible(kind.rows[spot.row])), " attends to ", el("b", {}, visible(kind.columns[spot.column])), " with weight ",
    el("span", { class: "formula" }, `${spot.weight.toFixed(4)} = ${formula(maps)}`), "; click to see q and k");
}
