// What models cost over the length of a text, or over the side of an image, side by side.
import { get } from "../api.js";
import { choice, el, refocused } from "../dom.js";
import { headColour } from "../draw/colours.js";
import { plot, short } from "../draw/plot.js";
import { address, bytes } from "./catalogue_model.js";
import { saver } from "./saving.js";

const PATIENCE = 4; // seconds that one count may take; the next would take longer
const WHAT = {
  flops_per_token: ["FLOPs", short, "forward, for each token or image"],
  activation_bytes: ["Activations", bytes, "kept for the backward pass of one text or image"],
  length_flops: ["FLOPs of the whole text", short, "tokens × FLOPs for each"],
};
const UNITS = { tokens: "tokens", pixels: "pixels a side" };
const known = new Map();

const value = (what, point) => (what === "length_flops" ? point.flops_per_token * point.length : point[what]);

let asked = 0;

/** `what`: which cost is drawn, `choose(what)` hears of another; `remove(name)` of a model that shall leave the plot. */
export async function costs(panel, names, { what: drawn, choose, remove }) {
  const turn = ++asked; // a later choice takes over
  const chosen = { what: WHAT[drawn] ? drawn : "flops_per_token" };
  panel.hidden = !names.length;
  delete panel.dataset.ready;
  const current = () => turn === asked && panel.isConnected;
  draw();
  for (const name of names) {
    if (!current()) return;
    await count(name);
  }
  if (current()) panel.dataset.ready = "costs";

  async function count(name) {
    if (!known.has(name)) {
      const structure = await get(address(name, "structure")).catch(() => null);
      if (!structure) return;
      known.set(name, { unit: structure.unit, points: [], left: structure.counted ? [...structure.lengths] : [], remarks: structure.counted ? [] : ["has no parameters to count"] });
    }
    const line = known.get(name);
    while (line.left.length && current()) {
      const at = line.left.shift();
      try {
        const point = await get(`${address(name, "cost")}?at=${at}`);
        line.points.push(point);
        if (point.seconds > PATIENCE && line.left.length) line.remarks.push(`was not counted beyond ${at}, which would take long`);
        if (point.seconds > PATIENCE) line.left = [];
      } catch (error) {
        line.remarks.push(error.message);
        if (line.unit === "tokens") line.left = []; // what is too long for its places stays so
      }
      if (current()) draw();
    }
  }

  function draw() {
    const [title, told, from] = WHAT[chosen.what];
    const units = Object.keys(UNITS).filter((unit) => names.some((name) => known.get(name)?.unit === unit));
    const notes = el("p", { class: "note" });
    const resting = names.flatMap((name) => (known.get(name)?.remarks ?? []).map((remark) => (remark.startsWith(name) ? remark : `${name} ${remark}`)));
    const hear = (values) => notes.replaceChildren(...(values
      ? values.flatMap((each) => [el("b", {}, each.name), ` at ${each.x}: `, el("span", { class: "formula" }, told(each.y)), "  "]).concat([from])
      : [resting.length ? [...new Set(resting)].slice(0, 4).join("; ") : `${from}; both axes are logarithmic`]));
    const figures = units.map((unit) => {
      const series = names.map((name, place) => ({ name, place, dots: true, points: known.get(name)?.unit === unit ? known.get(name).points.map((point) => [point.at, value(chosen.what, point)]) : [] }));
      const ticks = [...new Set(series.flatMap((each) => each.points.map(([at]) => at)))].sort((a, b) => a - b);
      return plot(series, { x: { label: UNITS[unit], log: true, ticks: ticks.length ? ticks.filter((_, place) => ticks.length < 8 || place % 2 === 0) : null }, y: { label: title, log: true }, width: Math.max(300, Math.min(820, panel.clientWidth - 36)), tell: hear });
    });
    const legend = el("div", { class: "row small", role: "group", "aria-label": "Models in the plot" }, ...names.map((name, place) => {
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = headColour(place);
      return el("button", { type: "button", title: "Leave it out", onclick: () => remove(name) }, swatch, name);
    }));
    const options = Object.entries(WHAT).map(([what, [label]]) => [what, label]);
    const data = () => names.map((name) => ({ name, ...known.get(name), left: undefined }));
    panel.replaceChildren(el("h2", {}, "Cost"),
      el("div", { class: "toolbar" }, choice("Cost of", options, chosen.what, (what) => { chosen.what = what; choose(what); refocused(panel, draw); }), saver(() => [...panel.querySelectorAll("svg.plot")], data, "cost")),
      legend, el("div", { class: "canvas" }, ...figures), notes);
    hear(null);
  }
}
