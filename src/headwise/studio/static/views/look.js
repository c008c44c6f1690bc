// Look: the attention of every head for one text or image.
import { keepKnown, clampIndex, reportProblem } from "../address.js";
import { getText } from "../api.js";
import { buttonGroup, el, field, keepFocus, availableWidth, announce, onThemeChange } from "../dom.js";
import { headColour } from "../draw/colours.js";
import { drawHeads } from "../draw/heads.js";
import { drawMatrix } from "../draw/matrix.js";
import { drawOverview } from "../draw/overview.js";
import { indexSelect, exampleSentences } from "./explain_form.js";
import { createImageView } from "./look_image.js";
import { neuronLink, meanMap, toRows, describeRow, describeCell } from "./look_notes.js";
import { fetchLayer, fetchMaps } from "./attention_maps.js";
import { fillRuns, findRuns } from "./run_list.js";
import { exportButtons } from "./export.js";

const VIEWS = [["heads", "Lines"], ["matrix", "Matrix"], ["model", "All heads"]];
const TEXT_LABELS = { target: "Source text" }; // by what the run generates
const LEAD = "Which tokens does each head attend to? Lines and colours show the weights softmax(q·k\u2060/\u2060√d), recomputed exactly where a fused kernel does not store them.";
const ONLY_CHAINS = "The runs here fold chains, which the page Fold shows; train one that takes text with `headwise demo`.";
const THUMBNAILS = "Thumbnails of long texts are max-pooled. Click one to enlarge it.";

export async function look(view, state, keep) {
  const problem = el("p", { class: "problem", role: "alert" }), unknownNote = el("p", { class: "note" });
  const figure = el("section", { class: "panel", "aria-label": "Attention" }, el("p", { class: "note" }, "Choose a run and a text or an image, then press Look."));
  const chosen = {
    view: state.view ?? "heads", kind: state.kind ?? "", layer: state.layer ?? "", exact: state.exact === "1",
    heads: new Set((state.heads ?? "").split(",").filter(Boolean).map(Number)), pin: state.pin === undefined ? null : Number(state.pin),
  };
  const run = el("select", { onchange: () => updateFields() });
  const text = el("textarea", { spellcheck: "false", dir: "auto" }), target = el("input", { placeholder: "the model's own output" });
  const button = el("button", { class: "main", type: "submit" }, "Look");
  const textField = field("Text", text), targetField = field("Output", target), examples = exampleSentences("look");
  const imageView = createImageView(figure, chosen, (next) => { [result, request] = [null, next]; remember(); }, runTask);
  imageView.field.addEventListener("taken", () => send());
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); send(); } },
    field("Run", run), textField, imageView.field, examples.list, targetField, button, unknownNote, problem);
  view.replaceChildren(el("h1", {}, "Look"), el("p", { class: "lead" }, LEAD), el("div", { class: "columns" }, form, figure));

  let result = null, request = {}, tasks = 0, waiting = false;
  onThemeChange(figure, redraw);
  const { runs, problem: none } = await findRuns(form, (each) => each.input !== "chains", ONLY_CHAINS).catch((error) => ({ runs: [], problem: error.message }));
  problem.textContent = none || fillRuns(run, runs, state.run);
  text.value = state.text ?? "";
  target.value = state.target ?? "";
  updateFields();
  if (text.value && !problem.textContent && inputKind() !== "images") await send();
  else if (figure.isConnected) view.dataset.ready = "form";

  function inputKind() {
    return runs.find((each) => each.name === run.value)?.input;
  }

  function updateFields() {
    const summary = runs.find((each) => each.name === run.value);
    textField.firstChild.textContent = TEXT_LABELS[summary?.output] ?? "Text";
    const isImage = inputKind() === "images";
    textField.hidden = isImage;
    imageView.field.hidden = !isImage;
    targetField.hidden = isImage || !(summary?.transduces ?? true);
    examples.show(isImage ? "" : run.value);
  }

  function remember() {
    keep({ ...request, view: chosen.view, kind: chosen.kind, layer: chosen.layer, heads: [...chosen.heads].join(","), exact: chosen.exact ? "1" : "", pin: chosen.pin });
  }

  /** Run an asynchronous task: only the last one counts, and its error is shown below the form. */
  async function runTask(task) {
    const turn = ++tasks, current = () => turn === tasks && figure.isConnected;
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
      if (turn === tasks) button.disabled = false;
    }
  }

  function send() {
    if (inputKind() === "images") return runTask((current) => imageView.look(run.value, current));
    const next = { run: run.value, text: text.value, target: targetField.hidden ? "" : target.value };
    waiting = true;
    return runTask(async (current) => {
      const answer = await fetchMaps(next, chosen.kind, chosen.layer === "" ? -1 : Number(chosen.layer)).finally(() => { waiting = false; });
      if (!current()) return "";
      if (next.text !== request.text && request.text !== undefined) chosen.pin = null; // the pinned token belongs to another text
      [result, request] = [answer, next];
      unknownNote.textContent = result.note;
      const kinds = result.kinds.map((kind) => kind.name);
      if (chosen.kind) [chosen.kind = ""] = keepKnown("attention", [chosen.kind], kinds);
      chosen.kind ||= result.main;
      announce(`${next.run} processed the text in ${result.milliseconds} milliseconds`);
      return draw(current);
    });
  }

  /** Redraw after a change of options; a pending response will be drawn with them anyway. */
  function redraw() {
    if (result && !waiting) runTask(draw);
  }

  async function draw(current) {
    const kind = result.kinds.find((each) => each.name === chosen.kind);
    const layer = chosen.layer === "" ? kind.layers - 1 : clampIndex("layer", Number(chosen.layer), kind.layers);
    if (chosen.layer !== "") chosen.layer = layer;
    const presentHeads = kind.present[layer].map((isPresent, head) => (isPresent ? head : -1)).filter((head) => head >= 0);
    for (const head of chosen.heads) if (head >= kind.heads) reportProblem(`There is no head ${head + 1} here; it is ignored.`);
    chosen.heads = new Set([...chosen.heads].filter((head) => presentHeads.includes(head)));
    if (chosen.pin !== null && chosen.pin >= kind.rows.length) {
      reportProblem(`There is no token ${chosen.pin + 1} here to pin.`);
      chosen.pin = null;
    }
    if (!chosen.heads.size) kind.present[layer].forEach((presentHeads, head) => presentHeads && chosen.heads.add(head));
    if (chosen.pin !== null && !(chosen.pin < kind.rows.length)) chosen.pin = null;
    const drawing = el("div", { class: "canvas" }), note = el("p", { class: "note" });
    const shown = chosen.view === "model" ? drawAllHeads(kind, layer) : await drawSelectedHeads(kind, layer, note);
    if (!current()) return "";
    drawing.append(shown.figure);
    note.append(...(note.childNodes.length ? [] : [shown.left]));
    remember();
    keepFocus(figure, () => figure.replaceChildren(toolbar(kind, layer, shown.data), drawing, note));
    return "look";
  }

  function drawAllHeads(kind, layer) {
    const openHead = (at, head) => { Object.assign(chosen, { layer: at, heads: new Set([head]), view: "matrix" }); redraw(); };
    const values = result.array(kind.thumbnails), [, count, rows, columns] = kind.thumbnails.shape, size = rows * columns;
    const data = () => kind.present.flatMap((each, at) => each.flatMap((presentHeads, head) => {
      const start = (at * count + head) * size;
      return presentHeads ? [{ layer: at + 1, head: head + 1, weights: toRows(values.subarray(start, start + size), columns) }] : [];
    }));
    return { figure: drawOverview(kind, values, { layer, heads: chosen.heads }, openHead, availableWidth(figure, 720)), left: THUMBNAILS, data };
  }

  async function drawSelectedHeads(kind, layer, note) {
    const weights = await fetchLayer(result, kind.name, layer, chosen.exact && kind.exact), size = kind.rows.length * kind.columns.length;
    const heads = [...chosen.heads].sort((a, b) => a - b), maps = heads.map((head) => ({ head, weights: weights.subarray(head * size, (head + 1) * size) }));
    const details = { kind, layer, maps, request, mean: meanMap(maps.map((map) => map.weights), size) };
    let drawn = null;
    drawn = chosen.view === "heads"
      ? drawHeads(kind.rows, kind.columns, maps, { pinned: chosen.pin, onPin: (row) => { chosen.pin = row; remember(); }, onHover: (row) => describeRow(note, details, row, drawn?.left), room: availableWidth(figure, 820) })
      : drawMatrix(kind.rows, kind.columns, details.mean, (spot) => describeCell(note, details, spot, drawn.left), { room: availableWidth(figure, 720, 110), onChoose: (spot) => { location.hash = neuronLink(details, spot.row, spot.column); } });
    return { ...drawn, data: () => maps.map((map) => ({ layer: layer + 1, head: map.head + 1, weights: toRows(map.weights, kind.columns.length) })) };
  }

  function toolbar(kind, layer, data) {
    const change = (key) => (value) => { chosen[key] = value; redraw(); };
    const toggle = (event, head) => {
      if (event.shiftKey) chosen.heads = new Set([head]);
      else if (!chosen.heads.delete(head)) chosen.heads.add(head);
      redraw();
    };
    const picker = el("div", { class: "row", role: "group", "aria-label": "Heads" });
    kind.present[layer].forEach((presentHeads, head) => {
      if (!presentHeads) return;
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = headColour(head);
      picker.append(el("button", { type: "button", "data-key": `head ${head}`, "aria-pressed": String(chosen.heads.has(head)), "aria-label": `head ${head + 1}`, title: "Shift-click: only this head", onclick: (event) => toggle(event, head) }, swatch, `${head + 1}`));
    });
    const single = chosen.view !== "model";
    return el("div", { class: "toolbar" },
      result.kinds.length > 1 ? buttonGroup("Attention", result.kinds.map((each) => [each.name, each.name]), kind.name, change("kind")) : null,
      buttonGroup("View", VIEWS, chosen.view, change("view")), single ? indexSelect("Layer", kind.layers, layer, change("layer")) : null, single ? picker : null,
      kind.exact && single ? buttonGroup("Map", [[false, "approximate"], [true, "exact softmax"]], chosen.exact, change("exact")) : null,
      exportButtons(() => figure.querySelector(".canvas > svg"), () => ({ ...request, kind: kind.name, rows: kind.rows, columns: kind.columns, exact: chosen.exact && kind.exact, maps: data() }), `attention-${kind.name}`,
        () => getText(`/api/look/${result.name}/page?title=${encodeURIComponent(request.text.slice(0, 200))}`)));
  }
}
