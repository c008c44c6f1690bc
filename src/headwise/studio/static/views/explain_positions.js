// Positions: the table of a position encoding as a heat map, and its scores over distance as curves.
import { keepKnown, clampIndex } from "../address.js";
import { getPacked } from "../api.js";
import { buttonGroup, el, field, availableWidth, onThemeChange } from "../dom.js";
import { signedColour } from "../draw/colours.js";
import { drawCurve, drawLegend } from "../draw/curve.js";
import { drawMatrix } from "../draw/matrix.js";
import { indexSelect, slider } from "./explain_form.js";
import { formatNumber } from "./explain_maths.js";
import { NO_TEXT_RUNS, findRuns } from "./run_list.js";
import { exportButtons } from "./export.js";

const KINDS = [["sinusoid", "Sinusoid"], ["rotary", "Rotary"], ["alibi", "ALiBi"], ["buckets", "T5 buckets"], ["run", "From a run"]];
const SLIDERS = { sinusoid: ["width"], rotary: ["width"], alibi: ["heads"], buckets: [], run: [] };
const RANGES = { length: ["Positions", [4, 128, 4]], width: ["Width", [4, 128, 4]], heads: ["Heads", [1, 16, 1]] };
const DEFAULTS = { kind: "sinusoid", length: 48, width: 64, heads: 8, head: 0, which: 0, run: "" };
const MAX_LINES = 8; // more lines are hard to distinguish

export async function positions(body, state, keep, runTask) {
  const selected = { ...DEFAULTS };
  for (const key in DEFAULTS) if (state[key] !== undefined) selected[key] = typeof DEFAULTS[key] === "number" ? Number(state[key]) : state[key];
  if (!KINDS.some(([kind]) => kind === selected.kind)) selected.kind = DEFAULTS.kind;
  const ofRun = selected.kind === "run", listed = ofRun ? await findRuns(body, (each) => each.input === "texts", NO_TEXT_RUNS) : { runs: [], problem: "" };
  const runs = listed.runs.map((each) => each.name);
  if (selected.run && ofRun) keepKnown("run", [selected.run], runs);
  if (ofRun && !runs.includes(selected.run)) selected.run = runs[0] ?? "";
  const choices = el("div"), picture = el("div", { class: "stack" });
  const run = el("select", { onchange: () => { selected.which = selected.head = 0; set("run", run.value); } }, ...runs.map((name) => el("option", { selected: name === selected.run }, name)));
  const controls = el("section", { class: "panel", "aria-label": "Position encoding" },
    el("div", { class: "field" }, buttonGroup("Kind", KINDS, selected.kind, (kind) => { location.hash = `#/explain?topic=positions&kind=${kind}`; })),
    ofRun ? field("Run", run) : null,
    ...["length", ...SLIDERS[selected.kind]].map((key) => slider(RANGES[key][0], selected[key], RANGES[key][1], (value) => set(key, value))), choices);
  body.replaceChildren(el("div", { class: "columns" }, controls, picture));
  let turns = 0;
  if (listed.problem) throw new Error(listed.problem);
  await load();
  onThemeChange(body, () => runTask(load));

  function set(key, value) {
    selected[key] = value;
    runTask(load);
  }

  async function load() {
    const turn = ++turns;
    selected.head = ofRun ? selected.head : clampIndex("head", selected.head, selected.heads);
    const keys = ofRun ? ["run", "which", "length", "head"] : ["kind", "length", "width", "heads", "head"];
    const query = new URLSearchParams(keys.map((key) => [key, selected[key]]));
    const view = await getPacked(`/api/explain/positions${ofRun ? "/run" : ""}?${query}`);
    if (turn !== turns) return;
    draw(view);
    keep(Object.fromEntries(["kind", ...keys].map((key) => [key, selected[key]])));
  }

  function draw(view) {
    const [heads] = view.mean.shape, status = el("p", { class: "status", role: "status" });
    const which = el("select", { onchange: () => set("which", Number(which.value)) },
      ...(view.choices ?? []).map((name, index) => el("option", { value: index, selected: index === selected.which }, name)));
    choices.replaceChildren(...(view.choices ? [field("Part of the model", which)] : []),
      ...(heads > 1 ? [field("The table shows", indexSelect("Head", heads, selected.head, (head) => set("head", head)))] : []));
    const properties = view.properties.map(({ name, holds, description }) =>
      el("p", { class: `property ${holds ? "holds" : "fails"}` }, el("b", {}, `${name}: ${holds ? "yes." : "no."}`), description));
    picture.replaceChildren(
      el("section", { class: "panel" }, el("h2", {}, view.name), el("p", { class: "formula" }, view.formula), el("p", { class: "note" }, view.description), ...properties),
      el("section", { class: "panel", "aria-label": "Table" }, el("h2", {}, `${view.axes[0]} down, ${view.axes[1]} across`), el("div", { class: "canvas" }, heatMap(view, status, availableWidth(picture, 560, 50)))),
      el("section", { class: "panel", "aria-label": "Over distance" }, el("h2", {}, `${view.unit}, over distance`), ...distances(view, status)),
      status);
    status.textContent = "Point at the table or the curve to see its values.";
    controls.querySelector(".export")?.remove();
    const take = exportButtons(() => [...picture.querySelectorAll("svg")], () => ({ ...view, table: rowsOf(view, view.table), mean: rowsOf(view, view.mean) }), `positions-${selected.kind}`);
    controls.append(take);
  }
}

function heatMap(view, status, across) {
  const values = view.array(view.table), [rows, columns] = view.table.shape;
  const largest = values.reduce((most, each) => Math.max(most, Math.abs(each)), 1e-9), shade = signedColour();
  const count = (length) => Array.from({ length }, (_, each) => (each % Math.max(1, 8 * Math.floor(length / 32)) ? "" : String(each)));
  const onHover = (spot) => { if (spot) status.textContent = `${view.symbol}(${spot.row}, ${spot.column}) = ${formatNumber(spot.weight, 4)}   where ${view.formula}`; };
  return drawMatrix(count(rows), count(columns), values, onHover, { shade: (value) => shade(value / largest), room: across, named: true, label: `${view.name}: ${view.axes[0]} down, ${view.axes[1]} across` }).figure;
}

/** The mean over all pairs at a distance, with a band from the smallest to the largest. */
function distances(view, status) {
  const [heads, count] = view.mean.shape, max_distance = (count - 1) / 2;
  const x = Array.from({ length: count }, (_, index) => index - max_distance);
  const [mean, low, high] = [view.mean, view.low, view.high].map((entry) => view.array(entry));
  const sliceHead = (values, head) => values.subarray(head * count, (head + 1) * count);
  const lines = Array.from({ length: Math.min(heads, MAX_LINES) }, (_, head) => ({ name: `head ${head + 1}`, y: [...sliceHead(mean, head)], low: [...sliceHead(low, head)], high: [...sliceHead(high, head)] }));
  const onHover = (index) => {
    if (index === null) return;
    const each = lines.slice(0, 4).map(({ name, y, low: least, high: most }) => `${heads > 1 ? `${name}: ` : ""}${formatNumber(y[index], 3)}${most[index] - least[index] > 1e-3 ? ` (${formatNumber(least[index], 3)} to ${formatNumber(most[index], 3)})` : ""}`);
    status.textContent = `distance ${formatNumber(x[index])}: ${each.join(", ")}, the mean of ${view.unit} over all pairs at this distance`;
  };
  const figure = el("div", { class: "canvas" }, drawCurve(x, lines, { xLabel: "distance j − i", yLabel: view.unit, label: `${view.unit} over distance`, onHover }));
  const left = heads > MAX_LINES ? [el("p", { class: "note" }, `The first ${MAX_LINES} of ${heads} heads are drawn.`)] : [];
  return heads > 1 ? [figure, drawLegend(lines.map((line) => line.name)), ...left] : [figure];
}

function rowsOf(view, entry) {
  const values = view.array(entry), columns = entry.shape.at(-1);
  return Array.from({ length: entry.shape[0] }, (_, row) => [...values.subarray(row * columns, (row + 1) * columns)]);
}
