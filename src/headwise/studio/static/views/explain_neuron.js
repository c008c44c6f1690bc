// Neuron: one weight of a real head, from the elements of q and k to the softmax.
import { among, within } from "../address.js";
import { getPacked, post } from "../api.js";
import { choice, el, room, themed } from "../dom.js";
import { bands } from "../draw/bands.js";
import { signed } from "../draw/colours.js";
import { table } from "../draw/table.js";
import { shown } from "../words.js";
import { asking, numbered } from "./explain_form.js";
import { number } from "./explain_maths.js";
import { saver } from "./saving.js";

const PLACES = ["layer", "head", "query", "key"];

export async function neuron(body, state, keep, work) {
  const picture = el("div", { class: "stack" }, el("section", { class: "panel" }, el("p", { class: "note" }, "Choose a run and a text, then look.")));
  const now = { kind: state.kind ?? "", ...Object.fromEntries(PLACES.map((name) => [name, Number(state[name] ?? 0)])) };
  const { form, asked, wrong } = await asking(state, "neuron", (next) => work(() => ask(next)));
  body.replaceChildren(el("div", { class: "columns" }, form, picture));
  let found = null, given = asked();
  themed(body, () => found && work(draw));
  if (wrong) throw new Error(wrong);
  if (given.text) await ask(given);

  async function ask(next) {
    [found, given] = [await post("/api/neuron", next), next];
    for (const kind of found.kinds) Object.assign(kind, { rows: kind.rows.map(shown), columns: kind.columns.map(shown) });
    await draw();
  }

  async function draw() {
    const kind = found.kinds.find((each) => each.name === now.kind) ?? found.kinds.find((each) => each.name === found.main);
    if (now.kind) among("attention", [now.kind], found.kinds.map((each) => each.name));
    now.kind = kind.name;
    now.layer = within("layer", now.layer, kind.heads.length);
    const most = { head: kind.heads[now.layer], query: kind.rows.length, key: kind.columns.length };
    for (const name in most) now[name] = within(name, now[name], most[name]);
    const row = await getPacked(`/api/neuron/${found.look}/${kind.name}/${PLACES.map((name) => now[name]).join("/")}`);
    const change = (key) => (value) => { now[key] = value; work(draw); };
    const queries = el("select", { "aria-label": "Query", "data-key": "Query", onchange: (event) => change("query")(Number(event.target.value)) },
      ...kind.rows.map((token, place) => el("option", { value: place, selected: place === now.query }, `query ${place + 1}: ${token}`)));
    const told = el("p", { class: "told", role: "status" }, "Click a key to take its weight apart; point at a band to see its elements.");
    const keys = row.array(row.keys), width = row.q.length;
    const tell = (key, place) => {
      const k = key === now.key ? row.k[place] : keys[key * width + place];
      told.textContent = `element ${place + 1}: q × k of “${kind.columns[key]}” = ${number(row.q[place], 4)} × ${number(k, 4)} = ${number(row.q[place] * k, 4)}`;
    };
    picture.replaceChildren(
      el("section", { class: "panel", "aria-label": "All keys" },
        el("div", { class: "toolbar" },
          found.kinds.length > 1 ? choice("Attention", found.kinds.map((each) => [each.name, each.name]), kind.name, change("kind")) : null,
          numbered("Layer", kind.heads.length, now.layer, change("layer")), numbered("Head", most.head, now.head, change("head")), queries,
          saver(() => picture.querySelector("svg"), () => ({ ...given, ...now, tokens: kind.columns, ...row, keys: undefined, array: undefined }), "neuron")),
        el("div", { class: "canvas" }, bands({ ...row, query: kind.rows[now.query], columns: kind.columns, keys }, now.key, { choose: change("key"), tell, room: room(picture, 720) }))),
      apart(kind, row, now, (place) => tell(now.key, place)), told);
    keep({ ...given, ...now });
  }
}

/** The chosen weight, step by step. */
function apart(kind, row, { query, key }, tell) {
  const products = row.q.map((each, place) => each * row.k[place]), largest = Math.max(...[row.q, row.k, products].flat().map(Math.abs), 1e-9);
  const shade = signed(), hidden = row.hidden[key] ?? false;
  const elements = table("Element by element", [row.q, row.k, products], {
    rows: ["q", "k", "q × k"], columns: row.q.map((_, place) => String(place + 1)), cell: (value) => value.toFixed(2).replace("-", "−"), shade: (value) => shade(value / largest), tell: (_, place) => tell(place),
  }).node;
  elements.classList.add("canvas");
  const scaled = row.dots[key] * row.scale, score = scaled + row.added[key];
  const total = row.dots.reduce((sum, dot, place) => sum + (row.hidden[place] ? 0 : Math.exp(dot * row.scale + row.added[place])), 0);
  const line = (...parts) => el("li", {}, ...parts);
  const formula = (text) => el("span", { class: "formula" }, text);
  return el("section", { class: "panel", "aria-label": "One weight" },
    el("h2", {}, `“${kind.rows[query]}” looks at “${kind.columns[key]}” with weight ${row.weights[key].toFixed(4)}`),
    row.exact ? el("p", { class: "note" }, "This layer approximates attention; here is what exact softmax attention does with its queries and keys.") : null,
    elements,
    el("ol", { class: "steps" },
      row.score_mods.rotate.length ? line(`q and k were turned by their places before (${row.score_mods.rotate.join(", ")}).`) : null,
      line("The products add up to ", formula(`q·k = ${number(row.dots[key], 4)}`)),
      line("scaled: ", formula(`× ${number(row.scale, 4)} = ${number(scaled, 4)}`), Math.abs(row.scale - row.q.length ** -0.5) < 1e-6 ? ` (1/√${row.q.length})` : ""),
      row.score_mods.bias.length + row.score_mods.edit_scores.length ? line(`${[...row.score_mods.bias, ...row.score_mods.edit_scores].join(" and ")} adds `, formula(`${number(row.added[key], 4)}: ${number(score, 4)}`)) : null,
      hidden ? line(`${row.score_mods.mask.join(" or ")} hides this key: −∞ is added, and its weight is 0.`)
        : line("softmax: ", formula(`exp(${number(score, 4)}) / Σ exp = ${number(Math.exp(score), 4)} / ${number(total, 4)} = ${number(Math.exp(score) / total, 4)}`)),
      row.score_mods.edit_weights.length ? line(`${row.score_mods.edit_weights.join(" and ")} changes the weights after the softmax, to `, formula(row.weights[key].toFixed(4))) : null));
}
