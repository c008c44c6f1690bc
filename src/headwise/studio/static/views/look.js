// Look: one text through a model, the attention of every head.
import { get, getPacked, getText, postPacked } from "../api.js";
import { choice, el, field, say, themed } from "../dom.js";
import { headColour } from "../draw/colours.js";
import { heads as drawHeads } from "../draw/heads.js";
import { matrix as drawMatrix } from "../draw/matrix.js";
import { overview as drawOverview } from "../draw/overview.js";
import { sentences } from "./explain_form.js";
import { images } from "./look_image.js";
import { saver } from "./saving.js";

const VIEWS = [["heads", "Lines"], ["matrix", "Matrix"], ["model", "All heads"]];
const READS = { transduce: "Text to read", "language-model": "Text to go through" };

export async function look(view, state, keep) {
  const problem = el("p", { class: "problem", role: "alert" });
  const figure = el("section", { class: "panel", "aria-label": "Attention" }, el("p", { class: "note" }, "Choose a run and a text, then look."));
  const chosen = { view: state.view ?? "heads", kind: state.kind ?? "", layer: state.layer ?? "", heads: new Set((state.heads ?? "").split(",").filter(Boolean).map(Number)), exact: state.exact === "1" };
  const run = el("select", { onchange: () => named() });
  const text = el("textarea", { spellcheck: "false" }), target = el("input", { placeholder: "its own output" });
  const button = el("button", { class: "main", type: "submit" }, "Look");
  const textField = field("Text", text), targetField = field("Follow this output", target), tries = sentences("look");
  const pictures = images(figure, chosen, () => remember());
  pictures.field.addEventListener("taken", () => ask());
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); ask(); } },
    field("Run", run), textField, pictures.field, tries.list, targetField, button, problem);
  view.replaceChildren(el("h1", {}, "Look"), el("p", { class: "lead" }, "Which tokens does each head look at? Lines and shades are the weights of softmax(q·k/√d), recomputed exactly where a fused kernel never formed them."), el("div", { class: "columns" }, form, figure));

  let found = null, weights = null;
  themed(figure, () => found && reads() !== "images" && draw());
  const runs = (await get("/api/runs").catch((error) => { problem.textContent = error.message; return []; })).filter((each) => each.ready);
  run.append(...runs.map((each) => el("option", { value: each.name }, each.model ? `${each.name} (${each.model})` : each.name)));
  if (state.run && runs.some((each) => each.name === state.run)) run.value = state.run;
  text.value = state.text ?? "";
  target.value = state.target ?? "";
  named();
  if (text.value && run.value && reads() !== "images") await ask();
  view.dataset.ready = "form";
  if (found) view.dataset.ready = "look";

  function reads() {
    return runs.find((each) => each.name === run.value)?.reads;
  }

  function named() {
    const task = runs.find((each) => each.name === run.value)?.task ?? "";
    textField.firstChild.textContent = READS[task] ?? "Text";
    const seeing = reads() === "images";
    textField.hidden = seeing;
    pictures.field.hidden = !seeing;
    targetField.hidden = seeing || (task !== "" && task !== "transduce");
    tries.show(seeing ? "" : run.value);
  }

  function remember() {
    keep({ run: run.value, text: text.value, target: target.value, view: chosen.view, kind: chosen.kind, layer: chosen.layer, heads: [...chosen.heads].join(","), exact: chosen.exact ? "1" : "" });
  }

  async function ask() {
    problem.textContent = "";
    delete view.dataset.ready;
    button.disabled = true;
    try {
      if (reads() === "images") {
        await pictures.look(run.value);
        view.dataset.ready = "image";
        return;
      }
      found = await postPacked("/api/look", { run: run.value, text: text.value, target: targetField.hidden ? "" : target.value });
      if (!found.kinds.some((kind) => kind.name === chosen.kind)) chosen.kind = found.main;
      await draw();
      say(`${run.value} looked at the text in ${found.milliseconds} milliseconds`);
      view.dataset.ready = "look";
    } catch (error) {
      problem.textContent = error.message;
      view.dataset.ready = "problem";
    } finally {
      button.disabled = false;
    }
  }

  function kindNow() {
    return found.kinds.find((kind) => kind.name === chosen.kind);
  }

  async function draw() {
    const kind = kindNow();
    const layer = chosen.layer === "" ? kind.layers - 1 : Math.min(Number(chosen.layer), kind.layers - 1);
    chosen.heads = new Set([...chosen.heads].filter((head) => kind.there[layer][head]));
    if (!chosen.heads.size) kind.there[layer].forEach((there, head) => there && chosen.heads.add(head));
    remember();
    const drawing = el("div", { class: "canvas" }), note = el("p", { class: "note" });
    if (chosen.view === "model") {
      const pick = (at, head) => { chosen.layer = at; chosen.heads = new Set([head]); chosen.view = "matrix"; draw(); };
      drawing.append(drawOverview(kind, found.array(kind.thumbnails), { layer, heads: chosen.heads }, pick));
      note.textContent = "Of long texts a thumbnail shows the heaviest of the weights that fall together. Click one to enlarge it.";
    } else {
      const exact = chosen.exact && kind.exact;
      const packed = await getPacked(`/api/look/${found.look}/${kind.name}/${layer}${exact ? "?exact=true" : ""}`);
      weights = packed.array(packed.weights);
      const size = kind.rows.length * kind.columns.length;
      const map = (head) => weights.subarray(head * size, (head + 1) * size);
      const drawn = chosen.view === "heads"
        ? drawHeads(kind.rows, kind.columns, [...chosen.heads].sort((a, b) => a - b).map((head) => ({ head, weights: map(head) })), { tell: (row) => tellRow(note, kind, row, map, drawn) })
        : drawMatrix(kind.rows, kind.columns, mean([...chosen.heads].map(map), size), (spot) => tellSpot(note, kind, spot, drawn));
      drawing.append(drawn.figure);
      note.textContent = drawn.left;
    }
    figure.replaceChildren(toolbar(kind, layer), drawing, note);
  }

  function toolbar(kind, layer) {
    const change = (key) => (value) => { chosen[key] = value; draw(); };
    const toggle = (head, alone) => {
      if (alone) chosen.heads = new Set([head]);
      else if (!chosen.heads.delete(head)) chosen.heads.add(head);
      draw();
    };
    const layers = el("select", { "aria-label": "Layer", onchange: (event) => change("layer")(Number(event.target.value)) },
      ...Array.from({ length: kind.layers }, (_, each) => el("option", { value: each, selected: each === layer }, `layer ${each + 1}`)));
    const picker = el("div", { class: "row", role: "group", "aria-label": "Heads" });
    kind.there[layer].forEach((there, head) => {
      if (!there) return;
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = headColour(head);
      picker.append(el("button", { type: "button", "aria-pressed": String(chosen.heads.has(head)), title: "Double click: only this head", onclick: () => toggle(head, false), ondblclick: () => toggle(head, true) }, swatch, `${head + 1}`));
    });
    return el("div", { class: "toolbar" },
      found.kinds.length > 1 ? choice("Attention", found.kinds.map((each) => [each.name, each.name]), kind.name, change("kind")) : null,
      choice("View", VIEWS, chosen.view, change("view")), layers, picker,
      kind.exact ? choice("Map", [[false, "implied"], [true, "exact softmax"]], chosen.exact, change("exact")) : null,
      saver(() => figure.querySelector(".canvas > svg"), () => ({ ...found, array: undefined, layer: layer + 1, heads: [...chosen.heads].map((head) => head + 1) }), `attention-${kind.name}`,
        () => getText(`/api/look/${found.look}/page?title=${encodeURIComponent(text.value.slice(0, 200))}`)));
  }
}

function mean(maps, size) {
  const sum = new Float32Array(size);
  for (const map of maps) map.forEach((weight, place) => { sum[place] += weight / maps.length; });
  return sum;
}

function tellRow(note, kind, row, map, drawn) {
  note.textContent = row === null ? drawn?.left ?? "" : `lines of “${kind.rows[row]}”`;
}

function tellSpot(note, kind, spot, drawn) {
  if (!spot) { note.textContent = drawn.left; return; }
  note.replaceChildren(el("b", {}, kind.rows[spot.row]), " looks at ", el("b", {}, kind.columns[spot.column]), " with weight ", el("span", { class: "formula" }, `${spot.weight.toFixed(4)} = softmax(q·k/√d)`));
}
