// Look: one text through a model, the attention of every head.
import { among, within, wrong } from "../address.js";
import { getText } from "../api.js";
import { choice, el, field, refocused, room, say, themed } from "../dom.js";
import { headColour } from "../draw/colours.js";
import { heads as drawHeads } from "../draw/heads.js";
import { matrix as drawMatrix } from "../draw/matrix.js";
import { overview as drawOverview } from "../draw/overview.js";
import { numbered, sentences } from "./explain_form.js";
import { images } from "./look_image.js";
import { apart, mean, rowsOf, tellRow, tellSpot } from "./look_told.js";
import { layerOf, looked } from "./looking.js";
import { fill, runsFor } from "./run_list.js";
import { saver } from "./saving.js";

const VIEWS = [["heads", "Lines"], ["matrix", "Matrix"], ["model", "All heads"]];
const LABELS = { target: "Text to read", continuation: "Text to go through" }; // by what the run writes
const LEAD = "Which tokens does each head look at? Lines and shades are the weights of softmax(q·k\u2060/\u2060√d), recomputed exactly where a fused kernel never formed them.";
const THUMBNAILS = "Of long texts a thumbnail shows the heaviest of the weights that fall together. Click one to enlarge it.";

export async function look(view, state, keep) {
  const problem = el("p", { class: "problem", role: "alert" }), remark = el("p", { class: "note" });
  const figure = el("section", { class: "panel", "aria-label": "Attention" }, el("p", { class: "note" }, "Choose a run and a text or an image, then look."));
  const chosen = {
    view: state.view ?? "heads", kind: state.kind ?? "", layer: state.layer ?? "", exact: state.exact === "1",
    heads: new Set((state.heads ?? "").split(",").filter(Boolean).map(Number)), pin: state.pin === undefined ? null : Number(state.pin),
  };
  const run = el("select", { onchange: () => named() });
  const text = el("textarea", { spellcheck: "false", dir: "auto" }), target = el("input", { placeholder: "its own output" });
  const button = el("button", { class: "main", type: "submit" }, "Look");
  const textField = field("Text", text), targetField = field("Follow this output", target), tries = sentences("look");
  const pictures = images(figure, chosen, (asked) => { [found, given] = [null, asked]; remember(); }, work);
  pictures.field.addEventListener("taken", () => ask());
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); ask(); } },
    field("Run", run), textField, pictures.field, tries.list, targetField, button, remark, problem);
  view.replaceChildren(el("h1", {}, "Look"), el("p", { class: "lead" }, LEAD), el("div", { class: "columns" }, form, figure));

  let found = null, given = {}, turns = 0, waiting = false;
  themed(figure, redraw);
  const { runs, problem: none } = await runsFor(form, () => true).catch((error) => ({ runs: [], problem: error.message }));
  problem.textContent = none || fill(run, runs, state.run);
  text.value = state.text ?? "";
  target.value = state.target ?? "";
  named();
  if (text.value && !problem.textContent && reads() !== "images") await ask();
  else if (figure.isConnected) view.dataset.ready = "form";

  function reads() {
    return runs.find((each) => each.name === run.value)?.reads;
  }

  function named() {
    const one = runs.find((each) => each.name === run.value);
    textField.firstChild.textContent = LABELS[one?.writes] ?? "Text";
    const seeing = reads() === "images";
    textField.hidden = seeing;
    pictures.field.hidden = !seeing;
    targetField.hidden = seeing || !(one?.transduces ?? true);
    tries.show(seeing ? "" : run.value);
  }

  function remember() {
    keep({ ...given, view: chosen.view, kind: chosen.kind, layer: chosen.layer, heads: [...chosen.heads].join(","), exact: chosen.exact ? "1" : "", pin: chosen.pin });
  }

  /** Whatever takes a while: of several the last one counts, and what goes wrong is told beside the form. */
  async function work(task) {
    const turn = ++turns, current = () => turn === turns && figure.isConnected;
    problem.textContent = "";
    delete view.dataset.ready;
    button.disabled = true;
    try {
      const ready = await task(current);
      if (current()) view.dataset.ready = ready;
    } catch (error) {
      if (!current()) return;
      problem.textContent = error.message;
      view.dataset.ready = "problem";
    } finally {
      if (turn === turns) button.disabled = false;
    }
  }

  function ask() {
    if (reads() === "images") return work((current) => pictures.look(run.value, current));
    const asked = { run: run.value, text: text.value, target: targetField.hidden ? "" : target.value };
    waiting = true;
    return work(async (current) => {
      const answer = await looked(asked, chosen.kind, chosen.layer === "" ? -1 : Number(chosen.layer)).finally(() => { waiting = false; });
      if (!current()) return "";
      if (asked.text !== given.text && given.text !== undefined) chosen.pin = null; // it was a token of another text
      [found, given] = [answer, asked];
      remark.textContent = found.remark;
      const kinds = found.kinds.map((kind) => kind.name);
      if (chosen.kind) [chosen.kind = ""] = among("attention", [chosen.kind], kinds);
      chosen.kind ||= found.main;
      say(`${asked.run} looked at the text in ${found.milliseconds} milliseconds`);
      return draw(current);
    });
  }

  /** At a change of what is shown; where an answer is under way, that will be drawn so. */
  function redraw() {
    if (found && !waiting) work(draw);
  }

  async function draw(current) {
    const kind = found.kinds.find((each) => each.name === chosen.kind);
    const layer = chosen.layer === "" ? kind.layers - 1 : within("layer", Number(chosen.layer), kind.layers);
    if (chosen.layer !== "") chosen.layer = layer;
    const there = kind.there[layer].map((is, head) => (is ? head : -1)).filter((head) => head >= 0);
    for (const head of chosen.heads) if (head >= kind.heads) wrong(`There is no head ${head + 1} here; it is left out.`);
    chosen.heads = new Set([...chosen.heads].filter((head) => there.includes(head)));
    if (chosen.pin !== null && chosen.pin >= kind.rows.length) {
      wrong(`There is no token ${chosen.pin + 1} here to be pinned.`);
      chosen.pin = null;
    }
    if (!chosen.heads.size) kind.there[layer].forEach((there, head) => there && chosen.heads.add(head));
    if (chosen.pin !== null && !(chosen.pin < kind.rows.length)) chosen.pin = null;
    const drawing = el("div", { class: "canvas" }), note = el("p", { class: "note" });
    const shown = chosen.view === "model" ? everyHead(kind, layer) : await someHeads(kind, layer, note);
    if (!current()) return "";
    drawing.append(shown.figure);
    note.append(...(note.childNodes.length ? [] : [shown.left]));
    remember();
    refocused(figure, () => figure.replaceChildren(toolbar(kind, layer, shown.data), drawing, note));
    return "look";
  }

  function everyHead(kind, layer) {
    const pick = (at, head) => { Object.assign(chosen, { layer: at, heads: new Set([head]), view: "matrix" }); redraw(); };
    const values = found.array(kind.thumbnails), [, count, rows, columns] = kind.thumbnails.shape, size = rows * columns;
    const data = () => kind.there.flatMap((each, at) => each.flatMap((there, head) => {
      const start = (at * count + head) * size;
      return there ? [{ layer: at + 1, head: head + 1, heaviest: rowsOf(values.subarray(start, start + size), columns) }] : [];
    }));
    return { figure: drawOverview(kind, values, { layer, heads: chosen.heads }, pick, room(figure, 720)), left: THUMBNAILS, data };
  }

  async function someHeads(kind, layer, note) {
    const weights = await layerOf(found, kind.name, layer, chosen.exact && kind.exact), size = kind.rows.length * kind.columns.length;
    const heads = [...chosen.heads].sort((a, b) => a - b), maps = heads.map((head) => ({ head, weights: weights.subarray(head * size, (head + 1) * size) }));
    const told = { kind, layer, maps, given, mean: mean(maps.map((map) => map.weights), size) };
    let drawn = null;
    drawn = chosen.view === "heads"
      ? drawHeads(kind.rows, kind.columns, maps, { pinned: chosen.pin, pin: (row) => { chosen.pin = row; remember(); }, tell: (row) => tellRow(note, told, row, drawn?.left), room: room(figure, 820) })
      : drawMatrix(kind.rows, kind.columns, told.mean, (spot) => tellSpot(note, told, spot, drawn.left), { room: room(figure, 720, 110), choose: (spot) => { location.hash = apart(told, spot.row, spot.column); } });
    return { ...drawn, data: () => maps.map((map) => ({ layer: layer + 1, head: map.head + 1, weights: rowsOf(map.weights, kind.columns.length) })) };
  }

  function toolbar(kind, layer, data) {
    const change = (key) => (value) => { chosen[key] = value; redraw(); };
    const toggle = (event, head) => {
      if (event.shiftKey) chosen.heads = new Set([head]);
      else if (!chosen.heads.delete(head)) chosen.heads.add(head);
      redraw();
    };
    const picker = el("div", { class: "row", role: "group", "aria-label": "Heads" });
    kind.there[layer].forEach((there, head) => {
      if (!there) return;
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = headColour(head);
      picker.append(el("button", { type: "button", "data-key": `head ${head}`, "aria-pressed": String(chosen.heads.has(head)), "aria-label": `head ${head + 1}`, title: "With the shift key: only this head", onclick: (event) => toggle(event, head) }, swatch, `${head + 1}`));
    });
    const one = chosen.view !== "model";
    return el("div", { class: "toolbar" },
      found.kinds.length > 1 ? choice("Attention", found.kinds.map((each) => [each.name, each.name]), kind.name, change("kind")) : null,
      choice("View", VIEWS, chosen.view, change("view")), one ? numbered("Layer", kind.layers, layer, change("layer")) : null, one ? picker : null,
      kind.exact && one ? choice("Map", [[false, "implied"], [true, "exact softmax"]], chosen.exact, change("exact")) : null,
      saver(() => figure.querySelector(".canvas > svg"), () => ({ ...given, kind: kind.name, rows: kind.rows, columns: kind.columns, exact: chosen.exact && kind.exact, maps: data() }), `attention-${kind.name}`,
        () => getText(`/api/look/${found.look}/page?title=${encodeURIComponent(given.text.slice(0, 200))}`)));
  }
}
