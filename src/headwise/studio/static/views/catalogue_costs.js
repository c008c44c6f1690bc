// The cost of several models over text length or image size.
import { get } from "../api.js";
import { buttonGroup, el, keepFocus } from "../dom.js";
import { headColour } from "../draw/colours.js";
import { drawPlot, formatShort } from "../draw/plot.js";
import { catalogueUrl, formatBytes } from "./catalogue_model.js";
import { exportButtons } from "./export.js";

const PATIENCE = 4; // seconds: if one count takes longer, larger lengths are skipped
const WHAT = {
  flops_per_token: ["FLOPs", formatShort, "forward pass, per token or image"],
  activation_bytes: ["Activations", formatBytes, "stored for the backward pass of one text or image"],
  length_flops: ["FLOPs of the whole text", formatShort, "tokens × FLOPs per token"],
};
const UNITS = { tokens: "tokens", pixels: "pixels a side" };
const costsOf = new Map();

const value = (what, point) => (what === "length_flops" ? point.flops_per_token * point.length : point[what]);

let turns = 0;

/** `what`: the cost that is drawn; `choose(what)` is called when it changes, `remove(name)` to remove a model from the plot. */
export async function showCosts(panel, names, { what: drawn, choose, remove }) {
  const turn = ++turns; // a later call takes over
  const chosen = { what: WHAT[drawn] ? drawn : "flops_per_token" };
  panel.hidden = !names.length;
  delete panel.dataset.ready;
  const current = () => turn === turns && panel.isConnected;
  draw();
  for (const name of names) {
    if (!current()) return;
    await count(name);
  }
  if (current()) panel.dataset.ready = "costs";

  async function count(name) {
    if (!costsOf.has(name)) {
      const structure = await get(catalogueUrl(name, "structure")).catch(() => null);
      if (!structure) return;
      costsOf.set(name, { unit: structure.unit, points: [], left: structure.has_parameters ? [...structure.lengths] : [], remarks: structure.has_parameters ? [] : ["has no parameters to count"] });
    }
    const line = costsOf.get(name);
    while (line.left.length && current()) {
      const at = line.left.shift();
      try {
        const point = await get(`${catalogueUrl(name, "cost")}?at=${at}`);
        line.points.push(point);
        if (point.seconds > PATIENCE && line.left.length) line.remarks.push(`was not counted beyond ${at}: it would take too long`);
        if (point.seconds > PATIENCE) line.left = [];
      } catch (error) {
        line.remarks.push(error.message);
        if (line.unit === "tokens") line.left = []; // too long for its positions, and so is every larger length
      }
      if (current()) draw();
    }
  }

  function draw() {
    const [title, formatValue, description] = WHAT[chosen.what];
    const units = Object.keys(UNITS).filter((unit) => names.some((name) => costsOf.get(name)?.unit === unit));
    const notes = el("p", { class: "note" });
    const resting = names.flatMap((name) => (costsOf.get(name)?.remarks ?? []).map((remark) => (remark.startsWith(name) ? remark : `${name} ${remark}`)));
    const describe = (values) => notes.replaceChildren(...(values
      ? values.flatMap((each) => [el("b", {}, each.name), ` at ${each.x}: `, el("span", { class: "formula" }, formatValue(each.y)), "  "]).concat([description])
      : [resting.length ? [...new Set(resting)].slice(0, 4).join("; ") : `${description}; both axes are logarithmic`]));
    const figures = units.map((unit) => {
      const series = names.map((name, index) => ({ name, index, dots: true, points: costsOf.get(name)?.unit === unit ? costsOf.get(name).points.map((point) => [point.at, value(chosen.what, point)]) : [] }));
      const ticks = [...new Set(series.flatMap((each) => each.points.map(([at]) => at)))].sort((a, b) => a - b);
      return drawPlot(series, { x: { label: UNITS[unit], log: true, ticks: ticks.length ? ticks.filter((_, index) => ticks.length < 8 || index % 2 === 0) : null }, y: { label: title, log: true }, width: Math.max(300, Math.min(820, panel.clientWidth - 36)), onHover: describe });
    });
    const legend = el("div", { class: "row small", role: "group", "aria-label": "Models in the plot" }, ...names.map((name, index) => {
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = headColour(index);
      return el("button", { type: "button", title: "Remove from the plot", onclick: () => remove(name) }, swatch, name);
    }));
    const options = Object.entries(WHAT).map(([what, [label]]) => [what, label]);
    const data = () => names.map((name) => ({ name, ...costsOf.get(name), left: undefined }));
    panel.replaceChildren(el("h2", {}, "Cost"),
      el("div", { class: "toolbar" }, buttonGroup("Cost of", options, chosen.what, (what) => { chosen.what = what; choose(what); keepFocus(panel, draw); }), exportButtons(() => [...panel.querySelectorAll("svg.plot")], data, "cost")),
      legend, el("div", { class: "canvas" }, ...figures), notes);
    describe(null);
  }
}
