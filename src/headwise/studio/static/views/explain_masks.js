// Masks as small matrices, alone and together.
import { get } from "../api.js";
import { buttonGroup, el, onThemeChange } from "../dom.js";
import { weightColour } from "../draw/colours.js";
import { drawMatrix } from "../draw/matrix.js";
import { drawTable } from "../draw/table.js";
import { slider } from "./explain_form.js";
import { formatNumber, softmax } from "./explain_maths.js";
import { exportButtons } from "./export.js";

const WORDS = ["the", "cat", "sat", "on", "the", "mat", "and", "slept"];
const MASKS = {
  causal: ["Causal", "Key j is hidden from query i if j > i: no query sees later tokens, so all positions are trained at once and generated one after the other.", "j > i"],
  padding: ["Padding", "Texts of a batch are padded to one length. Padding is hidden from all queries, so it does not change the result.", "j is padding"],
  window: ["Window", "Only keys near the query are visible: the cost is linear in the length instead of quadratic.", "j is too far from i"],
  segments: ["Segments", "Several documents share a row of a batch (packing); none may attend to another.", "j is in another document"],
};
const DEFAULTS = { padding: 2, side: "right", left: 2, right: 0, segments: 3, on: "causal,padding" };

export async function masks(body, state, keep, runTask) {
  const selected = { ...DEFAULTS };
  for (const key in DEFAULTS) if (state[key] !== undefined) selected[key] = typeof DEFAULTS[key] === "number" ? Number(state[key]) : state[key];
  const on = new Set(selected.on.split(",").filter((name) => MASKS[name]));
  const each = el("div", { class: "four" }), together = el("section", { class: "panel", "aria-label": "Together" }), status = el("p", { class: "status", role: "status" });
  body.replaceChildren(el("div", { class: "stack" }, each, together, status));
  let data = null, turns = 0;
  const panels = Object.fromEntries(Object.keys(MASKS).map((name) => [name, el("div")]));
  const sliders = {
    causal: [],
    padding: [slider("Padding tokens", selected.padding, [0, 6, 1], (value) => set("padding", value)), el("div", { class: "side" })],
    window: [slider("Keys before", selected.left, [0, 7, 1], (value) => set("left", value)), slider("Keys after", selected.right, [0, 7, 1], (value) => set("right", value))],
    segments: [slider("Documents", selected.segments, [1, 8, 1], (value) => set("segments", value))],
  };
  each.append(...Object.entries(MASKS).map(([name, [title, says]]) =>
    el("section", { class: "panel", "aria-label": title }, el("h2", {}, title), el("p", { class: "note" }, says), ...sliders[name], panels[name])));
  await load();
  onThemeChange(body, draw);

  function set(key, value) {
    selected[key] = value;
    return runTask(load);
  }

  async function load() {
    const turn = ++turns, query = new URLSearchParams({ length: WORDS.length, ...selected });
    query.delete("on");
    const answer = await get(`/api/explain/masks?${query}`);
    if (turn === turns) { data = answer; draw(); }
  }

  function draw() {
    const names = data.keep.map((real, index) => (real ? WORDS[index] : "<pad>"));
    sliders.padding[1].replaceChildren(buttonGroup("Side", [["left", "on the left"], ["right", "on the right"]], selected.side, (value) => set("side", value)));
    const small = (values, onHover, label) => drawMatrix(names, names, Float32Array.from(values.flat(), Number), (spot) => { if (spot) status.textContent = onHover(spot.row, spot.column); }, { room: 176, label }).figure;
    for (const [name, [title, , why]] of Object.entries(MASKS)) {
      panels[name].replaceChildren(small(data[name],
        (i, j) => `${names[i]} (${i + 1}) ${data[name][i][j] ? "sees" : "does not see"} ${names[j]} (${j + 1})${data[name][i][j] ? ": 0 is added" : `: ${why}, −∞ is added`}`, `${title}: visible keys`));
    }
    const allowed = names.map((_, i) => names.map((__, j) => [...on].every((name) => data[name][i][j])));
    const weights = allowed.map((row) => softmax(row.map((may) => (may ? 0 : -Infinity))));
    const toggles = Object.entries(MASKS).map(([name, [title]]) => el("button", { type: "button", "data-key": title, "aria-pressed": String(on.has(name)), onclick: () => runTask(() => { if (!on.delete(name)) on.add(name); draw(); }) }, title));
    const emptyRows = weights.map((row, i) => (row.every((weight) => weight === 0) ? i + 1 : 0)).filter(Boolean);
    const says = (i, j) => (allowed[i][j] ? `weight(${i + 1}, ${j + 1}) = exp(0) / (${allowed[i].filter(Boolean).length} · exp(0)) = ${formatNumber(weights[i][j], 4)}` : `weight(${i + 1}, ${j + 1}) = 0, hidden by ${[...on].filter((name) => !data[name][i][j]).join(" and ")}`);
    together.replaceChildren(el("h2", {}, "Together"),
      el("div", { class: "toolbar" }, el("div", { class: "row", role: "group", "aria-label": "Active masks" }, ...toggles),
        exportButtons(() => together.querySelector("svg"), () => ({ tokens: names, masks: [...on], allowed, weights }), "mask")),
      el("p", { class: "note" }, "A key is visible if all masks allow it. All scores are 0 here, so each row is uniform over its visible keys."),
      el("div", { class: "flow" }, el("div", {}, small(allowed, (i, j) => says(i, j), "All masks: visible keys")),
        drawTable("softmax(0 + mask)", weights, { rows: names, columns: names, shade: weightColour(), cell: (weight) => formatNumber(weight, 3), onHover: (i, j) => { status.textContent = says(i, j); } }).node),
      el("p", { class: "note" }, emptyRows.length ? `Row${emptyRows.length > 1 ? "s" : ""} ${emptyRows.join(", ")} ${emptyRows.length > 1 ? "have" : "has"} no visible key: softmax of −∞ alone would be NaN; Headwise gives zeros.` : ""));
    status.textContent = "Point at a cell to see why it is visible or hidden.";
    keep({ ...selected, on: [...on].join(",") });
  }
}
