// Permutation equivariance: shuffled words, with and without positions.
import { reportProblem } from "../address.js";
import { get } from "../api.js";
import { buttonGroup, el, field, availableWidth, addRovingFocus, svg, onThemeChange } from "../dom.js";
import { textColour, signedColour } from "../draw/colours.js";
import { attend, formatNumber, addMatrices } from "./explain_maths.js";
import { exportButtons } from "./export.js";

const STEP = 34, TOP = 40, EQUAL = 1e-9, WIDE_FROM = 700;
const WIDE = { cell: 64, word: 96, gap: 190, digits: 2, letters: 11 }, NARROW = { cell: 34, word: 50, gap: 40, digits: 1, letters: 6 };

export async function order(body, state, keep, runTask) {
  const text = el("input", { value: state.text ?? "the dog bites the man" });
  const picture = el("section", { class: "panel", "aria-label": "Outputs" }), status = el("p", { class: "status", role: "status" });
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); runTask(load); } },
    field("Words (2 to 12)", text), el("button", { class: "main", type: "submit" }, "Attend"));
  const selected = { positions: state.positions === "1", order: (state.order ?? "").split(",").filter(Boolean).map(Number) };
  body.replaceChildren(el("div", { class: "stack" }, form, picture, status));
  let data = null, shownText = "";
  await load();
  onThemeChange(body, draw);

  async function load() {
    const requested = text.value;
    data = await get(`/api/explain/order?${new URLSearchParams({ text: requested })}`);
    const whole = [...selected.order].sort((a, b) => a - b).every((each, index) => each === index);
    const fits = whole && selected.order.length === data.tokens.length;
    if (!fits && shownText === "" && selected.order.length) reportProblem(`The order ${selected.order.join(",").slice(0, 60)} is not a permutation of ${data.tokens.length} words, so a random one is shown.`);
    if (!fits) selected.order = shuffled(data.tokens.length);
    shownText = requested;
    draw();
  }

  function draw() {
    const through = (places) => {
      const words = places.map((index) => data.inputs[index]);
      return attend({ ...data, inputs: selected.positions ? addMatrices(words, data.positions) : words }).outputs;
    };
    const original = through(data.tokens.map((_, index) => index)), after = through(selected.order);
    const changes = selected.order.map((from, to) => Math.max(...after[to].map((each, column) => Math.abs(each - original[from][column]))));
    const largest = Math.max(...changes);
    const button = (label, act) => el("button", { type: "button", "data-key": label, onclick: () => runTask(() => { act(); draw(); }) }, label);
    picture.replaceChildren(
      el("div", { class: "toolbar" },
        buttonGroup("Positions", [[false, "without positions"], [true, "with positions"]], selected.positions, (value) => runTask(() => { selected.positions = value; draw(); })),
        button("Shuffle", () => { selected.order = shuffled(data.tokens.length, selected.order); }), button("Reverse", () => { selected.order.reverse(); }),
        exportButtons(() => picture.querySelector("svg"), () => ({ ...data, order: selected.order, outputs: original, shuffled: after, changes }), "order")),
      el("p", { class: "formula" }, selected.positions ? "attend(P x + positions) ≠ P attend(x + positions)" : "attend(P x) = P attend(x)"),
      el("p", { class: `property ${largest <= EQUAL ? "holds" : "fails"}` }, el("b", {}, largest <= EQUAL ? "Equivariant." : "Order matters."),
        `A word's output before and after differs by at most ${largest <= EQUAL ? "0 (rounding aside)" : formatNumber(largest, 4)}. Equal words have equal vectors${selected.positions ? " before positions are added" : ", and equal outputs"}.`),
      el("div", { class: "canvas" }, figure(data.tokens, selected.order, original, after, changes, (line) => { status.textContent = line; }, availableWidth(picture, WIDE_FROM) < WIDE_FROM ? NARROW : WIDE)));
    status.textContent = "Point at an output or a line. Each word has a random vector that depends on the word alone; outputs are softmax(Q Kᵀ / √d) V with the weights of the worked example.";
    keep({ text: shownText, positions: selected.positions ? "1" : "", order: selected.order.join(",") });
  }
}

/** A random permutation that differs from the given one. */
function shuffled(length, not = null) {
  const order = Array.from({ length }, (_, index) => index);
  for (let last = length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [order[last], order[other]] = [order[other], order[last]];
  }
  const plain = order.every((each, index) => each === (not ?? Array.from({ length }, (_, at) => at))[index]);
  return plain ? [...order.slice(1), order[0]] : order;
}

function figure(words, order, original, after, changes, onHover, { cell, word, gap, digits, letters }) {
  const columns = original[0].length, band = cell * columns, width = 2 * (word + band) + gap, height = TOP + STEP * words.length + 8;
  const largest = Math.max(...[...original, ...after].flat().map(Math.abs), 1e-9), shade = signedColour();
  const y = (row) => TOP + STEP * row;
  const text = (x, at, status, anchor = "start") => svg("text", { class: "token", x, y: at, "text-anchor": anchor }, status.length > letters ? `${status.slice(0, letters - 1)}…` : status);
  const heading = (x, status) => svg("text", { class: "token", x, y: 22 }, status);
  const hoverLabel = (line) => ({ role: "img", "aria-label": line, onmouseenter: () => onHover(line), onfocus: () => onHover(line) });
  const cells = (outputs, left, name) => outputs.map((row, i) => row.map((value, j) => svg("g", hoverLabel(`output of “${name(i)}”, column ${j + 1} = ${formatNumber(value, 4)} = Σ weight · value, over all ${words.length} words`),
    svg("rect", { x: left + cell * j, y: y(i), width: cell - 2, height: STEP - 6, rx: 3, fill: `rgb(${shade(value / largest)})`, stroke: "currentColor", "stroke-opacity": 0.15 }),
    svg("text", { class: "amount", x: left + cell * (j + 0.5) - 1, y: y(i) + 18, "text-anchor": "middle", fill: textColour(shade(value / largest)) }, formatNumber(value, digits)))));
  const from = word + band + 4, to = word + band + gap - 4, right = word + band + gap;
  const lines = order.map((before, index) => svg("path", {
    class: "moved", d: `M${from} ${y(before) + 14}C${(from + to) / 2} ${y(before) + 14} ${(from + to) / 2} ${y(index) + 14} ${to} ${y(index) + 14}`,
    fill: "none", stroke: changes[index] <= EQUAL ? "var(--accent)" : "var(--warn)", "stroke-width": 2, "stroke-dasharray": changes[index] <= EQUAL ? null : "5 4",
    ...hoverLabel(`“${words[before]}” moves from position ${before + 1} to ${index + 1}; its output changes by at most ${changes[index] <= EQUAL ? "0" : formatNumber(changes[index], 4)}`),
  }));
  const first = cells(original, word, (i) => words[i]), second = cells(after, right, (i) => words[order[i]]);
  addRovingFocus(first.map((row, i) => [...row, lines[order.indexOf(i)], ...second[i]]));
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Outputs as written and shuffled" },
    heading(word, "as written"), heading(right, "shuffled"),
    ...words.map((each, row) => text(word - 6, y(row) + 18, each, "end")), ...first.flat(), ...lines, ...second.flat(),
    ...order.map((before, row) => text(right + band + 4, y(row) + 18, words[before])));
}
