// Permutation equivariance: shuffled words, with and without positions.
import { wrong } from "../address.js";
import { get } from "../api.js";
import { choice, el, field, room, roving, svg, themed } from "../dom.js";
import { readable, signed } from "../draw/colours.js";
import { attend, number, sum } from "./explain_maths.js";
import { saver } from "./saving.js";

const STEP = 34, TOP = 40, EQUAL = 1e-9, ENOUGH = 700;
const WIDE = { cell: 64, word: 96, gap: 190, digits: 2, letters: 11 }, NARROW = { cell: 34, word: 50, gap: 40, digits: 1, letters: 6 };

export async function order(body, state, keep, work) {
  const text = el("input", { value: state.text ?? "the dog bites the man" });
  const picture = el("section", { class: "panel", "aria-label": "Outputs" }), told = el("p", { class: "told", role: "status" });
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); work(ask); } },
    field("Words (2 to 12)", text), el("button", { class: "main", type: "submit" }, "Attend"));
  const now = { positions: state.positions === "1", order: (state.order ?? "").split(",").filter(Boolean).map(Number) };
  body.replaceChildren(el("div", { class: "stack" }, form, picture, told));
  let found = null, given = "";
  await ask();
  themed(body, draw);

  async function ask() {
    const asked = text.value;
    found = await get(`/api/explain/order?${new URLSearchParams({ text: asked })}`);
    const whole = [...now.order].sort((a, b) => a - b).every((each, place) => each === place);
    const fits = whole && now.order.length === found.tokens.length;
    if (!fits && given === "" && now.order.length) wrong(`The order ${now.order.join(",").slice(0, 60)} is not one of ${found.tokens.length} words, so another is shown.`);
    if (!fits) now.order = shuffled(found.tokens.length);
    given = asked;
    draw();
  }

  function draw() {
    const through = (places) => {
      const words = places.map((place) => found.inputs[place]);
      return attend({ ...found, inputs: now.positions ? sum(words, found.positions) : words }).outputs;
    };
    const written = through(found.tokens.map((_, place) => place)), after = through(now.order);
    const apart = now.order.map((from, to) => Math.max(...after[to].map((each, column) => Math.abs(each - written[from][column]))));
    const largest = Math.max(...apart);
    const button = (label, act) => el("button", { type: "button", "data-key": label, onclick: () => work(() => { act(); draw(); }) }, label);
    picture.replaceChildren(
      el("div", { class: "toolbar" },
        choice("Positions", [[false, "without positions"], [true, "with positions"]], now.positions, (value) => work(() => { now.positions = value; draw(); })),
        button("Shuffle", () => { now.order = shuffled(found.tokens.length, now.order); }), button("Reverse", () => { now.order.reverse(); }),
        saver(() => picture.querySelector("svg"), () => ({ ...found, order: now.order, outputs: written, shuffled: after, apart }), "order")),
      el("p", { class: "formula" }, now.positions ? "attend(P x + positions) ≠ P attend(x + positions)" : "attend(P x) = P attend(x)"),
      el("p", { class: `promise ${largest <= EQUAL ? "kept" : "broken"}` }, el("b", {}, largest <= EQUAL ? "Equivariant." : "Order matters."),
        `A word's output before and after differs by at most ${largest <= EQUAL ? "0 (rounding aside)" : number(largest, 4)}. Equal words have equal vectors${now.positions ? " before positions are added" : ", and equal outputs"}.`),
      el("div", { class: "canvas" }, figure(found.tokens, now.order, written, after, apart, (line) => { told.textContent = line; }, room(picture, ENOUGH) < ENOUGH ? NARROW : WIDE)));
    told.textContent = "Point at an output or a line. Outputs are softmax(Q Kᵀ / √d) V with the weights of the worked example, of random vectors that depend on the word alone.";
    keep({ text: given, positions: now.positions ? "1" : "", order: now.order.join(",") });
  }
}

/** Another order than the given one. */
function shuffled(length, not = null) {
  const order = Array.from({ length }, (_, place) => place);
  for (let last = length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [order[last], order[other]] = [order[other], order[last]];
  }
  const plain = order.every((each, place) => each === (not ?? Array.from({ length }, (_, at) => at))[place]);
  return plain ? [...order.slice(1), order[0]] : order;
}

function figure(words, order, written, after, apart, tell, { cell, word, gap, digits, letters }) {
  const columns = written[0].length, band = cell * columns, width = 2 * (word + band) + gap, height = TOP + STEP * words.length + 8;
  const largest = Math.max(...[...written, ...after].flat().map(Math.abs), 1e-9), shade = signed();
  const y = (row) => TOP + STEP * row;
  const text = (x, at, told, anchor = "start") => svg("text", { class: "token", x, y: at, "text-anchor": anchor }, told.length > letters ? `${told.slice(0, letters - 1)}…` : told);
  const heading = (x, told) => svg("text", { class: "token", x, y: 22 }, told);
  const says = (line) => ({ role: "img", "aria-label": line, onmouseenter: () => tell(line), onfocus: () => tell(line) });
  const cells = (outputs, left, name) => outputs.map((row, i) => row.map((value, j) => svg("g", says(`output of “${name(i)}”, column ${j + 1} = ${number(value, 4)} = Σ weight · value, over all ${words.length} words`),
    svg("rect", { x: left + cell * j, y: y(i), width: cell - 2, height: STEP - 6, rx: 3, fill: `rgb(${shade(value / largest)})`, stroke: "currentColor", "stroke-opacity": 0.15 }),
    svg("text", { class: "amount", x: left + cell * (j + 0.5) - 1, y: y(i) + 18, "text-anchor": "middle", fill: readable(shade(value / largest)) }, number(value, digits)))));
  const from = word + band + 4, to = word + band + gap - 4, right = word + band + gap;
  const lines = order.map((before, place) => svg("path", {
    class: "moved", d: `M${from} ${y(before) + 14}C${(from + to) / 2} ${y(before) + 14} ${(from + to) / 2} ${y(place) + 14} ${to} ${y(place) + 14}`,
    fill: "none", stroke: apart[place] <= EQUAL ? "var(--accent)" : "var(--warn)", "stroke-width": 2, "stroke-dasharray": apart[place] <= EQUAL ? null : "5 4",
    ...says(`“${words[before]}” moves from place ${before + 1} to ${place + 1}; its output changes by at most ${apart[place] <= EQUAL ? "0" : number(apart[place], 4)}`),
  }));
  const first = cells(written, word, (i) => words[i]), second = cells(after, right, (i) => words[order[i]]);
  roving(first.map((row, i) => [...row, lines[order.indexOf(i)], ...second[i]]));
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Outputs as written and shuffled" },
    heading(word, "as written"), heading(right, "shuffled"),
    ...words.map((each, row) => text(word - 6, y(row) + 18, each, "end")), ...first.flat(), ...lines, ...second.flat(),
    ...order.map((before, row) => text(right + band + 4, y(row) + 18, words[before])));
}
