// What `headwise compare` left behind: its table, and a dot plot with intervals.
import { among } from "../address.js";
import { get } from "../api.js";
import { choice, el } from "../dom.js";
import { dots } from "../draw/plot.js";
import { saver } from "./saving.js";

const BETTER = { true: ", lower is better", false: ", higher is better", null: "" };

export async function comparisons(panel, name, score, remember) {
  const names = await get("/api/comparisons").catch(() => []);
  panel.hidden = !names.length;
  if (!names.length) return;
  const picker = el("select", { "aria-label": "Comparison", onchange: () => show(picker.value, "") }, ...names.map((each) => el("option", { value: each }, each)));
  if (name) among("comparison", [name], names);
  picker.value = names.includes(name) ? name : names[0];
  await show(picker.value, names.includes(name) ? score : "");

  async function show(which, by) {
    delete panel.dataset.ready;
    let found;
    try {
      found = await get(`/api/comparisons/${encodeURIComponent(which)}?score=${encodeURIComponent(by)}`);
    } catch (error) {
      panel.replaceChildren(el("h2", {}, "Comparisons"), picker, el("p", { class: "problem", role: "alert" }, error.message));
      return;
    }
    remember({ table: which, score: by });
    const note = el("p", { class: "note" }), title = `${found.score}${BETTER[found.lower]}`;
    const tell = (lane) => { note.textContent = lane ? told(lane, found.score) : `dots: seeds; line: 95 % interval; bar: mean; red: what others report`; };
    const drawing = el("div", { class: "canvas" }, dots(found.lanes, { title, tell, width: Math.max(300, Math.min(760, panel.clientWidth - 36)) }));
    const rows = found.rows.map((row) => el("tr", {}, ...row.map((cell, column) => el(column ? "td" : "th", column ? {} : { scope: "row" }, cell))));
    panel.replaceChildren(el("h2", {}, found.title),
      el("div", { class: "toolbar" }, picker, found.scores.length > 1 ? choice("Score", found.scores.map((each) => [each, each]), found.score, (each) => show(which, each)) : null,
        saver(() => drawing.querySelector("svg"), () => found, `comparison-${which}`)),
      drawing, note,
      el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...found.header.map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, ...rows))),
      ...found.notes.map((each) => el("p", { class: "note" }, each)));
    tell(null);
    panel.dataset.ready = "comparison";
  }
}

function told(lane, score) {
  const seeds = Object.entries(lane.seeds).map(([seed, value]) => `${value?.toFixed(2)} (seed ${seed})`).join(", ");
  const mean = lane.estimate ? `; mean ${lane.estimate.mean.toFixed(2)} [${lane.estimate.low?.toFixed(2)}, ${lane.estimate.high?.toFixed(2)}] over ${lane.estimate.over === "seeds" ? `${lane.estimate.count} seeds, by Student's t` : "test items, by the bootstrap"}` : "";
  const others = lane.published ? `; published ${lane.published.value} ${lane.published.source}` : "";
  return `${lane.name}: ${score} ${seeds || "not measured here"}${mean}${others}`;
}
