// Step: decoding token by token, with a choice at each step.
import { keepKnown, clampIndex } from "../address.js";
import { postPacked } from "../api.js";
import { buttonGroup, el, keepFocus, availableWidth, announce, onThemeChange } from "../dom.js";
import { drawBars } from "../draw/bars.js";
import { drawMatrix } from "../draw/matrix.js";
import { nextDistribution, sampleIndex } from "../sampling.js";
import { formatFixed, formatPercent, visible } from "../format.js";
import { indexSelect, slider } from "./explain_form.js";
import { exportButtons } from "./export.js";
import { createBeamPanel } from "./step_beams.js";
import { createGenerationForm } from "./generation_form.js";

const BARS = 12, MAX_STEPS = 60;

export async function step(view, state, keep) {
  const written = (state.tokens ?? "").split(",").filter(Boolean).map(Number);
  const setting = (key, usual) => Number(state[key] ?? usual);
  const chosen = { temperature: Math.round(10 * setting("temperature", 1)) / 10, k: setting("k", 0), p: setting("p", 1), kind: state.kind ?? "", layer: state.layer ?? "", all: state.all === "1" };
  let result = null, request = null, turn = 0; // request: the run and the text that are shown
  const form = createGenerationForm(state, "Start", () => { written.length = 0; beams.clear(); send(form.getRequest()); });
  const outputPanel = el("section", { class: "panel", "aria-label": "Output so far" });
  const next = el("div", { class: "canvas" }), nextNote = el("p", { class: "note" });
  const attention = el("section", { class: "panel", "aria-label": "Attention of this step" });
  const beams = createBeamPanel(state, () => ({ ...request, longest: form.output(request.run) === "continuation" ? 12 : 64 }), follow, remember);
  const setOption = (key) => (value) => { chosen[key] = value; remember(); drawNext(); };
  const choices = el("section", { class: "panel", "aria-label": "Next token" }, el("h2", {}, "Next token"),
    el("div", { class: "sliders" },
      slider("Temperature", chosen.temperature, [0.1, 2, 0.1], (value) => setOption("temperature")(Math.round(10 * value) / 10)),
      slider("Top k (0: all)", chosen.k, [0, 50, 1], setOption("k")), slider("Top p", chosen.p, [0.05, 1, 0.05], setOption("p"))),
    next, nextNote);
  const panels = el("div", { class: "stack" }, outputPanel, el("div", { class: "two" }, choices, attention), beams.panel);
  panels.hidden = true;
  view.replaceChildren(el("h1", {}, "Step"), el("p", { class: "lead" }, "A model generates one token at a time. Click a bar to choose the next token yourself; decoding continues from there."),
    el("div", { class: "columns" }, form.form, panels));
  onThemeChange(panels, () => result && drawAttention());
  await form.ready;
  if (state.text !== undefined && !form.problem.textContent) await send(form.getRequest());
  if (result && state.beams) await beams.search();
  if (panels.isConnected) view.dataset.ready ??= "form";

  function remember() {
    keep({ ...request, tokens: written.join(","), temperature: chosen.temperature, k: chosen.k || "", p: chosen.p, kind: chosen.kind, layer: chosen.layer, all: chosen.all ? "1" : "", beams: beams.count() });
  }

  async function send(next = request) {
    const now = ++turn;
    form.problem.textContent = "";
    delete view.dataset.ready;
    form.button.disabled = true;
    try {
      const answer = await postPacked("/api/step", { ...next, tokens: written });
      if (now !== turn || !panels.isConnected) return; // a later request is under way, or another page is open
      [result, request] = [answer, next];
      form.note.textContent = result.note;
      panels.hidden = false;
      remember();
      keepFocus(view, () => { drawWritten(); drawNext(); drawAttention(); });
      announce(result.finished ? `output: ${result.text}` : `most probable: ${visible(result.next.labels[0])}`);
      view.dataset.ready = "step";
    } catch (error) {
      if (now !== turn || !panels.isConnected) return;
      if (result) written.splice(0, Infinity, ...result.written.map((each) => each.id)); // undo the token that was refused
      form.problem.textContent = error.message;
      view.dataset.ready = "problem";
    } finally {
      if (now === turn) form.button.disabled = false;
    }
  }

  function write(id) {
    written.push(id);
    return send();
  }

  function follow(ids) {
    written.splice(0, Infinity, ...ids);
    return send();
  }

  async function finish() {
    for (let count = 0; count < MAX_STEPS && !result.finished && view.dataset.ready !== "problem"; count++) await write(result.next.ids[0]);
  }

  function drawWritten() {
    const button = (label, act, off) => el("button", { type: "button", disabled: off, onclick: act }, label);
    const chips = result.written.map((each, index) => el("button", { type: "button", class: "chip", title: `P = ${formatPercent(Math.exp(each.log_prob))}; click to go back before it`, onclick: () => follow(written.slice(0, index)) }, visible(each.label)));
    const total = result.written.reduce((sum, each) => sum + each.log_prob, 0);
    const end = result.finished ? " The output is finished." : "";
    outputPanel.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Output so far"),
      el("div", { class: "row" }, button("Back", () => follow(written.slice(0, -1)), !written.length), button("Most probable", () => write(result.next.ids[0]), result.finished),
        button("Sample", () => write(result.next.ids[sampleIndex(nextDistribution(result.next, chosen).probs)]), result.finished), button("To the end", finish, result.finished))),
    el("div", { class: "row chips" }, ...(chips.length ? chips : [el("span", { class: "quiet" }, "no tokens yet")])),
    el("p", { class: "note" }, result.written.length ? el("span", { class: "formula" }, `log P = Σ log P(token | tokens before) = ${formatFixed(total, 4)}`) : "The model has read the text; no token is generated yet.", end));
  }

  function drawNext() {
    choices.hidden = !result || result.finished;
    if (choices.hidden) return;
    const { probs, kept, others } = nextDistribution(result.next, chosen);
    const rows = result.next.labels.slice(0, BARS).map((label, index) => ({ label, share: probs[index] }));
    const tail = probs.slice(BARS).reduce((sum, each) => sum + each, others);
    const cutOff = result.next.others + probs.length - kept;
    const rest = `${tail > 0 ? `All other tokens: ${formatPercent(tail)}.` : ""} ${chosen.k || chosen.p < 1 ? `${kept.toLocaleString()} tokens can be sampled, ${cutOff.toLocaleString()} are cut off.` : ""}`;
    const onHover = (row) => {
      if (row === null) { nextNote.textContent = rest; return; }
      const logit = result.next.logits[row], modelProb = Math.exp(logit - result.next.normaliser);
      nextNote.replaceChildren(el("b", {}, visible(rows[row].label)), " ", el("span", { class: "formula" }, `logit ${formatFixed(logit, 3)}; the model's P = exp(logit) / Σ exp = ${modelProb.toFixed(4)}; sampled with P^(1/${chosen.temperature}) / Σ = ${rows[row].share.toFixed(4)}`));
    };
    next.replaceChildren(drawBars(rows, (row) => write(result.next.ids[row]), onHover, availableWidth(choices, 390)));
    onHover(null);
  }

  function drawAttention() {
    const kinds = result.attention;
    attention.hidden = !kinds.length;
    if (!kinds.length) return;
    const kind = kinds.find((each) => each.kind === chosen.kind) ?? kinds.find((each) => each.kind === "cross") ?? kinds[0];
    if (chosen.kind) [chosen.kind = ""] = keepKnown("attention", [chosen.kind], kinds.map((each) => each.kind));
    const layers = kind.heads.length, layer = chosen.layer === "" ? layers - 1 : clampIndex("layer", Number(chosen.layer), layers);
    if (chosen.layer !== "") chosen.layer = layer;
    const all = chosen.all && kind.steps, columns = kind.columns.map(visible);
    const names = [...result.written.map((each) => visible(each.label)), ...(result.finished ? [] : ["next"])];
    const rows = all ? names : ["mean", ...Array.from({ length: kind.heads[layer] }, (_, head) => `head ${head + 1}`)];
    const weights = all ? layerValues(result.array(kind.steps), kind.steps.shape, layer) : addMean(layerValues(result.array(kind.last), kind.last.shape, layer), kind.heads[layer], columns.length);
    const note = el("p", { class: "note" }), change = (key) => (value) => { chosen[key] = value; remember(); drawAttention(); };
    const map = drawMatrix(rows, columns, weights, (spot) => describeSpot(note, spot, map, rows, columns, all), { room: availableWidth(attention, 720, 90), high: 24 });
    note.textContent = map.left;
    attention.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Attention of this step"),
      kinds.length > 1 ? buttonGroup("Attention", kinds.map((each) => [each.kind, each.kind === "cross" ? "cross-attention" : "self-attention"]), kind.kind, change("kind")) : null,
      kind.steps ? buttonGroup("Steps", [[false, "This step"], [true, "All steps"]], Boolean(all), change("all")) : null,
      layers > 1 ? indexSelect("Layer", layers, layer, change("layer")) : null,
      exportButtons(() => attention.querySelector(".canvas > svg"), () => ({ ...result, array: undefined, kind: kind.kind, layer: layer + 1, rows, columns, weights: [...weights] }), "step")),
    el("div", { class: "canvas" }, map.figure), note);
    if (kind.kind !== "cross") attention.querySelector(".canvas").scrollLeft = 1e6; // show the last tokens
  }
}

/** The values of one layer. */
function layerValues(values, shape, layer) {
  const size = shape.slice(1).reduce((product, each) => product * each, 1);
  return values.subarray(layer * size, (layer + 1) * size);
}

/** The heads of a layer, below their mean. */
function addMean(weights, heads, keys) {
  const result = new Float32Array((heads + 1) * keys);
  result.set(weights.subarray(0, heads * keys), keys);
  for (let index = 0; index < heads * keys; index++) result[index % keys] += weights[index] / heads;
  return result;
}

function describeSpot(note, spot, map, rows, columns, all) {
  if (!spot) { note.textContent = map.left; return; }
  const who = all ? ["before ", el("b", {}, rows[spot.row])] : [rows[spot.row] === "mean" ? "the mean of the heads" : rows[spot.row]];
  note.replaceChildren(...who, " gives ", el("b", {}, columns[spot.column]), " ", el("span", { class: "formula" }, `${spot.weight.toFixed(4)} = softmax(score(q, k))${all || rows[spot.row] === "mean" ? ", mean over heads" : ""}`));
}
