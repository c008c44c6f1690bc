// Comparisons: the tables of `headwise compare`, and a dot plot with intervals.
import { keepKnown } from "../address.js";
import { get } from "../api.js";
import { buttonGroup, el } from "../dom.js";
import { drawDotPlot } from "../draw/plot.js";
import { exportButtons } from "./export.js";

const BETTER = { true: ", lower is better", false: ", higher is better", null: "" };

export async function showComparisons(panel, name, score, remember) {
  const names = await get("/api/comparisons").catch(() => []);
  panel.hidden = !names.length;
  if (!names.length) return;
  const picker = el("select", { "aria-label": "Comparison", onchange: () => show(picker.value, "") }, ...names.map((each) => el("option", { value: each }, each)));
  if (name) keepKnown("comparison", [name], names);
  picker.value = names.includes(name) ? name : names[0];
  await show(picker.value, names.includes(name) ? score : "");

  async function show(selected, by) {
    delete panel.dataset.ready;
    let table;
    try {
      table = await get(`/api/comparisons/${encodeURIComponent(selected)}?score=${encodeURIComponent(by)}`);
    } catch (error) {
      panel.replaceChildren(el("h2", {}, "Comparisons"), picker, el("p", { class: "problem", role: "alert" }, error.message));
      return;
    }
    remember({ table: selected, score: by });
    const note = el("p", { class: "note" }), title = `${table.score}${BETTER[table.lower_is_better]}`;
    const onHover = (arm) => { note.textContent = arm ? describeArm(arm, table.score) : `dots: seeds; line: 95 % interval; bar: mean; red: published`; };
    const drawing = el("div", { class: "canvas" }, drawDotPlot(table.arms, { title, onHover, width: Math.max(300, Math.min(760, panel.clientWidth - 36)) }));
    const rows = table.rows.map((row) => el("tr", {}, ...row.map((cell, column) => el(column ? "td" : "th", column ? {} : { scope: "row" }, cell))));
    panel.replaceChildren(el("h2", {}, table.title),
      el("div", { class: "toolbar" }, picker, table.scores.length > 1 ? buttonGroup("Score", table.scores.map((each) => [each, each]), table.score, (each) => show(selected, each)) : null,
        exportButtons(() => drawing.querySelector("svg"), () => table, `comparison-${selected}`)),
      drawing, note,
      el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...table.header.map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, ...rows))),
      ...table.notes.map((each) => el("p", { class: "note" }, each)));
    onHover(null);
    panel.dataset.ready = "comparison";
  }
}

function describeArm(arm, score) {
  const seeds = Object.entries(arm.seeds).map(([seed, value]) => `${value?.toFixed(2)} (seed ${seed})`).join(", ");
  const mean = arm.estimate ? `; mean ${arm.estimate.mean.toFixed(2)} [${arm.estimate.low?.toFixed(2)}, ${arm.estimate.high?.toFixed(2)}] over ${arm.estimate.over === "seeds" ? `${arm.estimate.count} seeds, by Student's t` : "test items, by the bootstrap"}` : "";
  const others = arm.published ? `; published ${arm.published.value} ${arm.published.source}` : "";
  return `${arm.name}: ${score} ${seeds || "not measured here"}${mean}${others}`;
}
