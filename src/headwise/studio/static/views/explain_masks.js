// Masks as small matrices, alone and together.
import { get } from "../api.js";
import { choice, el, themed } from "../dom.js";
import { ramp } from "../draw/colours.js";
import { matrix } from "../draw/matrix.js";
import { table } from "../draw/table.js";
import { slider } from "./explain_form.js";
import { number, softmax } from "./explain_maths.js";
import { saver } from "./saving.js";

const WORDS = ["the", "cat", "sat", "on", "the", "mat", "and", "slept"];
const SAYS = {
  causal: ["Causal", "Key j is hidden from query i where j > i: nobody sees what comes later, so all positions can be learnt at once and written one after the other.", "j > i"],
  padding: ["Padding", "Texts of a batch are filled up to one length. What is no token is hidden from everybody, so that it changes nothing.", "no token stands at j"],
  window: ["Window", "Only keys near the query are seen: the cost grows with the length instead of its square.", "j is too far from i"],
  segments: ["Segments", "Several documents share a row of a batch; none looks into another.", "j is of another document"],
};
const DEFAULTS = { padding: 2, side: "right", left: 2, right: 0, segments: 3, on: "causal,padding" };

export async function masks(body, state, keep, work) {
  const now = { ...DEFAULTS };
  for (const key in DEFAULTS) if (state[key] !== undefined) now[key] = typeof DEFAULTS[key] === "number" ? Number(state[key]) : state[key];
  const on = new Set(now.on.split(",").filter((name) => SAYS[name]));
  const each = el("div", { class: "four" }), together = el("section", { class: "panel", "aria-label": "Together" }), told = el("p", { class: "told", role: "status" });
  body.replaceChildren(el("div", { class: "stack" }, each, together, told));
  let found = null, asked = 0;
  const panels = Object.fromEntries(Object.keys(SAYS).map((name) => [name, el("div")]));
  const sliders = {
    causal: [],
    padding: [slider("Places that are no tokens", now.padding, [0, 6, 1], (value) => set("padding", value)), el("div", { class: "side" })],
    window: [slider("Keys before", now.left, [0, 7, 1], (value) => set("left", value)), slider("Keys after", now.right, [0, 7, 1], (value) => set("right", value))],
    segments: [slider("Documents", now.segments, [1, 8, 1], (value) => set("segments", value))],
  };
  each.append(...Object.entries(SAYS).map(([name, [title, says]]) =>
    el("section", { class: "panel", "aria-label": title }, el("h2", {}, title), el("p", { class: "note" }, says), ...sliders[name], panels[name])));
  await ask();
  themed(body, draw);

  function set(key, value) {
    now[key] = value;
    return work(ask);
  }

  async function ask() {
    const turn = ++asked, query = new URLSearchParams({ length: WORDS.length, ...now });
    query.delete("on");
    const answer = await get(`/api/explain/masks?${query}`);
    if (turn === asked) { found = answer; draw(); }
  }

  function draw() {
    const names = found.real.map((real, place) => (real ? WORDS[place] : "<pad>"));
    sliders.padding[1].replaceChildren(choice("Side", [["left", "on the left"], ["right", "on the right"]], now.side, (value) => set("side", value)));
    const small = (values, tell, label) => matrix(names, names, Float32Array.from(values.flat(), Number), (spot) => { if (spot) told.textContent = tell(spot.row, spot.column); }, { room: 176, label }).figure;
    for (const [name, [title, , why]] of Object.entries(SAYS)) {
      panels[name].replaceChildren(small(found[name],
        (i, j) => `${names[i]} (${i + 1}) ${found[name][i][j] ? "sees" : "does not see"} ${names[j]} (${j + 1})${found[name][i][j] ? ": 0 is added" : `: ${why}, −∞ is added`}`, `${title}: what may be seen`));
    }
    const seen = names.map((_, i) => names.map((__, j) => [...on].every((name) => found[name][i][j])));
    const weights = seen.map((row) => softmax(row.map((may) => (may ? 0 : -Infinity))));
    const toggles = Object.entries(SAYS).map(([name, [title]]) => el("button", { type: "button", "data-key": title, "aria-pressed": String(on.has(name)), onclick: () => work(() => { if (!on.delete(name)) on.add(name); draw(); }) }, title));
    const blind = weights.map((row, i) => (row.every((weight) => weight === 0) ? i + 1 : 0)).filter(Boolean);
    const says = (i, j) => (seen[i][j] ? `weight(${i + 1}, ${j + 1}) = exp(0) / (${seen[i].filter(Boolean).length} · exp(0)) = ${number(weights[i][j], 4)}` : `weight(${i + 1}, ${j + 1}) = 0, hidden by ${[...on].filter((name) => !found[name][i][j]).join(" and ")}`);
    together.replaceChildren(el("h2", {}, "Together"),
      el("div", { class: "toolbar" }, el("div", { class: "row", role: "group", "aria-label": "Masks that act" }, ...toggles),
        saver(() => together.querySelector("svg"), () => ({ tokens: names, masks: [...on], seen, weights }), "mask")),
      el("p", { class: "note" }, "A weight survives where all masks allow it. All scores are 0 here, so a row shares its weight evenly among what it sees."),
      el("div", { class: "flow" }, el("div", {}, small(seen, (i, j) => says(i, j), "Both: what may be seen")),
        table("softmax(0 + mask)", weights, { rows: names, columns: names, shade: ramp(), cell: (weight) => number(weight, 3), tell: (i, j) => { told.textContent = says(i, j); } }).node),
      el("p", { class: "note" }, blind.length ? `Row${blind.length > 1 ? "s" : ""} ${blind.join(", ")} may see nothing: softmax of −∞ alone would be NaN; Headwise gives zeros, and the row contributes nothing.` : ""));
    told.textContent = "Point at a cell to see why it is seen or hidden.";
    keep({ ...now, on: [...on].join(",") });
  }
}
