// Positions: what stands at each place as a heat map, and what two places have of their distance as curves.
import { among, within } from "../address.js";
import { getPacked } from "../api.js";
import { choice, el, field, room, themed } from "../dom.js";
import { signed } from "../draw/colours.js";
import { curve, legend } from "../draw/curve.js";
import { matrix } from "../draw/matrix.js";
import { numbered, slider } from "./explain_form.js";
import { number } from "./explain_maths.js";
import { LACKING, runsFor } from "./run_list.js";
import { saver } from "./saving.js";

const KINDS = [["sinusoid", "Sinusoid"], ["rotary", "Rotary"], ["alibi", "ALiBi"], ["buckets", "T5 buckets"], ["run", "Of a run"]];
const SLIDERS = { sinusoid: ["width"], rotary: ["width"], alibi: ["heads"], buckets: [], run: [] };
const RANGES = { length: ["Places", [4, 128, 4]], width: ["Width", [4, 128, 4]], heads: ["Heads", [1, 16, 1]] };
const DEFAULTS = { kind: "sinusoid", length: 48, width: 64, heads: 8, head: 0, which: 0, run: "" };
const MOST = 8; // lines that can still be told apart

export async function positions(body, state, keep, work) {
  const now = { ...DEFAULTS };
  for (const key in DEFAULTS) if (state[key] !== undefined) now[key] = typeof DEFAULTS[key] === "number" ? Number(state[key]) : state[key];
  if (!KINDS.some(([kind]) => kind === now.kind)) now.kind = DEFAULTS.kind;
  const ofRun = now.kind === "run", listed = ofRun ? await runsFor(body, (each) => each.reads !== "images", LACKING) : { runs: [], problem: "" };
  const runs = listed.runs.map((each) => each.name);
  if (now.run && ofRun) among("run", [now.run], runs);
  if (ofRun && !runs.includes(now.run)) now.run = runs[0] ?? "";
  const choices = el("div"), picture = el("div", { class: "stack" });
  const run = el("select", { onchange: () => { now.which = now.head = 0; set("run", run.value); } }, ...runs.map((name) => el("option", { selected: name === now.run }, name)));
  const controls = el("section", { class: "panel", "aria-label": "Kind of positions" },
    el("div", { class: "field" }, choice("Kind", KINDS, now.kind, (kind) => { location.hash = `#/explain?topic=positions&kind=${kind}`; })),
    ofRun ? field("Run", run) : null,
    ...["length", ...SLIDERS[now.kind]].map((key) => slider(RANGES[key][0], now[key], RANGES[key][1], (value) => set(key, value))), choices);
  body.replaceChildren(el("div", { class: "columns" }, controls, picture));
  let asked = 0;
  if (listed.problem) throw new Error(listed.problem);
  await ask();
  themed(body, () => work(ask));

  function set(key, value) {
    now[key] = value;
    work(ask);
  }

  async function ask() {
    const turn = ++asked;
    now.head = ofRun ? now.head : within("head", now.head, now.heads);
    const keys = ofRun ? ["run", "which", "length", "head"] : ["kind", "length", "width", "heads", "head"];
    const query = new URLSearchParams(keys.map((key) => [key, now[key]]));
    const found = await getPacked(`/api/explain/positions${ofRun ? "/run" : ""}?${query}`);
    if (turn !== asked) return;
    draw(found);
    keep(Object.fromEntries(["kind", ...keys].map((key) => [key, now[key]])));
  }

  function draw(found) {
    const [heads] = found.mean.shape, told = el("p", { class: "told", role: "status" });
    const which = el("select", { onchange: () => set("which", Number(which.value)) },
      ...(found.choices ?? []).map((name, place) => el("option", { value: place, selected: place === now.which }, name)));
    choices.replaceChildren(...(found.choices ? [field("Part of the model", which)] : []),
      ...(heads > 1 ? [field("The table shows", numbered("Head", heads, now.head, (head) => set("head", head)))] : []));
    const promises = found.promises.map(({ name, kept, says }) =>
      el("p", { class: `promise ${kept ? "kept" : "broken"}` }, el("b", {}, `${name}: ${kept ? "yes." : "no."}`), says));
    picture.replaceChildren(
      el("section", { class: "panel" }, el("h2", {}, found.name), el("p", { class: "formula" }, found.formula), el("p", { class: "note" }, found.says), ...promises),
      el("section", { class: "panel", "aria-label": "Table" }, el("h2", {}, `${found.axes[0]} down, ${found.axes[1]} across`), el("div", { class: "canvas" }, heatMap(found, told, room(picture, 560, 50)))),
      el("section", { class: "panel", "aria-label": "Over distance" }, el("h2", {}, `${found.unit}, over distance`), ...distances(found, told)),
      told);
    told.textContent = "Point at the table or the curve to see the number there.";
    controls.querySelector(".take")?.remove();
    const take = saver(() => [...picture.querySelectorAll("svg")], () => ({ ...found, table: rowsOf(found, found.table), mean: rowsOf(found, found.mean) }), `positions-${now.kind}`);
    controls.append(take);
  }
}

function heatMap(found, told, across) {
  const values = found.array(found.table), [rows, columns] = found.table.shape;
  const largest = values.reduce((most, each) => Math.max(most, Math.abs(each)), 1e-9), shade = signed();
  const count = (length) => Array.from({ length }, (_, each) => (each % Math.max(1, 8 * Math.floor(length / 32)) ? "" : String(each)));
  const tell = (spot) => { if (spot) told.textContent = `${found.symbol}(${spot.row}, ${spot.column}) = ${number(spot.weight, 4)}   where ${found.formula}`; };
  return matrix(count(rows), count(columns), values, tell, { shade: (value) => shade(value / largest), room: across, named: true, label: `${found.name}: ${found.axes[0]} down, ${found.axes[1]} across` }).figure;
}

/** The mean over all pairs at a distance, in the band of the least and the largest. */
function distances(found, told) {
  const [heads, count] = found.mean.shape, max_distance = (count - 1) / 2;
  const x = Array.from({ length: count }, (_, place) => place - max_distance);
  const [mean, low, high] = [found.mean, found.low, found.high].map((where) => found.array(where));
  const of = (values, head) => values.subarray(head * count, (head + 1) * count);
  const lines = Array.from({ length: Math.min(heads, MOST) }, (_, head) => ({ name: `head ${head + 1}`, y: [...of(mean, head)], low: [...of(low, head)], high: [...of(high, head)] }));
  const tell = (place) => {
    if (place === null) return;
    const each = lines.slice(0, 4).map(({ name, y, low: least, high: most }) => `${heads > 1 ? `${name}: ` : ""}${number(y[place], 3)}${most[place] - least[place] > 1e-3 ? ` (${number(least[place], 3)} to ${number(most[place], 3)})` : ""}`);
    told.textContent = `distance ${number(x[place])}: ${each.join(", ")}, the mean of ${found.unit} over all pairs that far apart`;
  };
  const figure = el("div", { class: "canvas" }, curve(x, lines, { across: "distance j − i", up: found.unit, label: `${found.unit} over distance`, tell }));
  const left = heads > MOST ? [el("p", { class: "note" }, `The first ${MOST} of ${heads} heads are drawn.`)] : [];
  return heads > 1 ? [figure, legend(lines.map((line) => line.name)), ...left] : [figure];
}

function rowsOf(found, where) {
  const values = found.array(where), columns = where.shape.at(-1);
  return Array.from({ length: where.shape[0] }, (_, row) => [...values.subarray(row * columns, (row + 1) * columns)]);
}
