// What Look says of a line or a cell: numbers, and the way to what they are made of.
import { el } from "../dom.js";
import { shown } from "../words.js";

const FEW = 4; // keys of a query

export function mean(maps, size) {
  const sum = new Float32Array(size);
  for (const map of maps) map.forEach((weight, place) => { sum[place] += weight / maps.length; });
  return sum;
}

/** A flat map as rows, to five decimals. */
export const rowsOf = (values, columns) => Array.from({ length: values.length / columns }, (_, row) =>
  Array.from(values.subarray(row * columns, (row + 1) * columns), (value) => Number(value.toFixed(5))));

/** The address of the elements of q and k behind a weight: of the head that gives most there. */
export function apart({ kind, layer, maps, given }, query, key) {
  const place = query * kind.columns.length + key;
  const most = maps.reduce((best, map) => (map.weights[place] > best.weights[place] ? map : best));
  return `#/explain?${new URLSearchParams({ topic: "neuron", ...given, kind: kind.name, layer, head: most.head, query, key })}`;
}

const formula = (maps) => `softmax(q·k/√d)${maps.length > 1 ? `, the mean of ${maps.length} heads` : ` of head ${maps[0].head + 1}`}`;

export function tellRow(note, told, row, left = "") {
  if (row === null) { note.textContent = left; return; }
  const { kind, maps } = told, columns = kind.columns.length;
  const best = Array.from({ length: columns }, (_, column) => [column, told.mean[row * columns + column]]).sort((a, b) => b[1] - a[1]).slice(0, FEW);
  note.replaceChildren(el("b", {}, shown(kind.rows[row])), " looks at ",
    ...best.flatMap(([column, weight]) => [el("a", { href: apart(told, row, column), title: "See the elements of q and k" }, shown(kind.columns[column])), ` ${weight.toFixed(3)}, `]),
    el("span", { class: "formula" }, `= ${formula(maps)}`));
}

export function tellSpot(note, told, spot, left) {
  if (!spot) { note.textContent = left; return; }
  const { kind, maps } = told;
  note.replaceChildren(el("b", {}, shown(kind.rows[spot.row])), " looks at ", el("b", {}, shown(kind.columns[spot.column])), " with weight ",
    el("span", { class: "formula" }, `${spot.weight.toFixed(4)} = ${formula(maps)}`), "; click to see its q and k");
}
