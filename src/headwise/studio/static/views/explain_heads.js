// The heads of one layer of a real run, side by side for one text.
import { among, within } from "../address.js";
import { choice, el, themed } from "../dom.js";
import { matrix } from "../draw/matrix.js";
import { shown } from "../words.js";
import { asking, numbered } from "./explain_form.js";
import { number } from "./explain_maths.js";
import { layerOf, looked } from "./looking.js";
import { saver } from "./saving.js";

export async function heads(body, state, keep, work) {
  const picture = el("section", { class: "panel", "aria-label": "Heads" }, el("p", { class: "note" }, "Choose a run and a text, then look."));
  const told = el("p", { class: "told", role: "status" });
  const now = { kind: state.kind ?? "", layer: Number(state.layer ?? 0) };
  const { form, asked, wrong } = await asking(state, "heads", (given) => work(() => ask(given)));
  body.replaceChildren(el("div", { class: "columns" }, form, el("div", { class: "stack" }, picture, told)));
  let found = null, given = asked();
  themed(body, () => found && work(draw));
  if (wrong) throw new Error(wrong);
  if (given.text) await ask(given);

  async function ask(next) {
    [found, given] = [await looked(next, now.kind, now.layer), next];
    for (const kind of found.kinds) Object.assign(kind, { rows: kind.rows.map(shown), columns: kind.columns.map(shown) });
    await draw();
  }

  async function draw() {
    const kind = found.kinds.find((each) => each.name === now.kind) ?? found.kinds.find((each) => each.name === found.main);
    if (now.kind) among("attention", [now.kind], found.kinds.map((each) => each.name));
    now.kind = kind.name;
    now.layer = within("layer", now.layer, kind.layers);
    const weights = await layerOf(found, kind.name, now.layer), size = kind.rows.length * kind.columns.length;
    const there = kind.there[now.layer].map((is, head) => (is ? head : -1)).filter((head) => head >= 0);
    const map = (head) => weights.subarray(head * size, (head + 1) * size);
    told.textContent = "Point at a cell to compare the weight that each head gives there.";
    const tell = (spot) => {
      if (!spot) return;
      const each = there.map((head) => `head ${head + 1}: ${number(map(head)[spot.row * kind.columns.length + spot.column], 3)}`);
      told.textContent = `${kind.rows[spot.row]} looks at ${kind.columns[spot.column]} with softmax(q·k/√d) = ${each.join(", ")}`;
    };
    const figures = there.map((head) => el("figure", {}, el("figcaption", { class: "note" }, `head ${head + 1}: ${reach(map(head), kind)}`),
      matrix(kind.rows, kind.columns, map(head), tell, { room: 250, label: `Head ${head + 1}` }).figure));
    const change = (key) => (value) => { now[key] = value; work(draw); };
    picture.replaceChildren(
      el("div", { class: "toolbar" },
        found.kinds.length > 1 ? choice("Attention", found.kinds.map((each) => [each.name, each.name]), kind.name, change("kind")) : null,
        numbered("Layer", kind.layers, now.layer, change("layer")),
        saver(() => [...picture.querySelectorAll("svg")], () => ({ ...given, kind: kind.name, layer: now.layer + 1, rows: kind.rows, columns: kind.columns, heads: there.map((head) => [...map(head)]) }), "heads")),
      el("p", { class: "note formula" }, "MultiHead(x) = [head₁; head₂; …] W_O,   headₕ = softmax(Qₕ Kₕᵀ / √d) Vₕ"),
      el("div", { class: "flow" }, ...figures));
    keep({ ...given, ...now });
  }
}

/** How many keys a head really looks at: exp of the entropy of its rows, on average. */
function reach(weights, kind) {
  const columns = kind.columns.length;
  let total = 0;
  for (let row = 0; row < kind.rows.length; row++) {
    let entropy = 0;
    for (let column = 0; column < columns; column++) {
      const weight = weights[row * columns + column];
      if (weight > 0) entropy -= weight * Math.log(weight);
    }
    total += Math.exp(entropy);
  }
  return `about ${number(total / kind.rows.length, 1)} keys a query`;
}
