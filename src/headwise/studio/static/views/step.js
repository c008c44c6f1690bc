// Step: writing token by token, with the choice at each step.
import { among, within } from "../address.js";
import { postPacked } from "../api.js";
import { choice, el, refocused, room, say, themed } from "../dom.js";
import { bars } from "../draw/bars.js";
import { matrix } from "../draw/matrix.js";
import { distribution, drawn } from "../sampling.js";
import { fixed, percent, shown } from "../words.js";
import { numbered, slider } from "./explain_form.js";
import { saver } from "./saving.js";
import { beamPanel } from "./step_beams.js";
import { writingForm } from "./writing_form.js";

const BARS = 12, FURTHEST = 60;

export async function step(view, state, keep) {
  const written = (state.tokens ?? "").split(",").filter(Boolean).map(Number);
  const setting = (key, usual) => Number(state[key] ?? usual);
  const chosen = { temperature: Math.round(10 * setting("temperature", 1)) / 10, k: setting("k", 0), p: setting("p", 1), kind: state.kind ?? "", layer: state.layer ?? "", all: state.all === "1" };
  let found = null, given = null, turn = 0; // given: the run and the text of what is shown
  const asking = writingForm(state, "Start", () => { written.length = 0; beams.clear(); ask(asking.asked()); });
  const soFar = el("section", { class: "panel", "aria-label": "Written so far" });
  const next = el("div", { class: "canvas" }), nextNote = el("p", { class: "note" });
  const seen = el("section", { class: "panel", "aria-label": "Attention of this step" });
  const beams = beamPanel(state, () => ({ ...given, longest: asking.writes(given.run) === "continuation" ? 12 : 64 }), follow, remember);
  const move = (key) => (value) => { chosen[key] = value; remember(); drawNext(); };
  const choices = el("section", { class: "panel", "aria-label": "Next token" }, el("h2", {}, "What comes next"),
    el("div", { class: "sliders" },
      slider("Temperature", chosen.temperature, [0.1, 2, 0.1], (value) => move("temperature")(Math.round(10 * value) / 10)),
      slider("Top k (0: all)", chosen.k, [0, 50, 1], move("k")), slider("Top p", chosen.p, [0.05, 1, 0.05], move("p"))),
    next, nextNote);
  const stages = el("div", { class: "stack" }, soFar, el("div", { class: "two" }, choices, seen), beams.panel);
  stages.hidden = true;
  view.replaceChildren(el("h1", {}, "Step"), el("p", { class: "lead" }, "A model writes one token at a time. Choose the next one yourself: click a bar, and it goes on from there."),
    el("div", { class: "columns" }, asking.form, stages));
  themed(stages, () => found && drawSeen());
  await asking.ready;
  if (state.text !== undefined && !asking.problem.textContent) await ask(asking.asked());
  if (found && state.beams) await beams.search();
  if (stages.isConnected) view.dataset.ready ??= "form";

  function remember() {
    keep({ ...given, tokens: written.join(","), temperature: chosen.temperature, k: chosen.k || "", p: chosen.p, kind: chosen.kind, layer: chosen.layer, all: chosen.all ? "1" : "", beams: beams.count() });
  }

  async function ask(next = given) {
    const now = ++turn;
    asking.problem.textContent = "";
    delete view.dataset.ready;
    asking.button.disabled = true;
    try {
      const answer = await postPacked("/api/step", { ...next, tokens: written });
      if (now !== turn || !stages.isConnected) return; // a later click was faster, or another page is open
      [found, given] = [answer, next];
      asking.remark.textContent = found.remark;
      stages.hidden = false;
      remember();
      refocused(view, () => { drawWritten(); drawNext(); drawSeen(); });
      say(found.over ? `written: ${found.text}` : `most probable: ${shown(found.next.labels[0])}`);
      view.dataset.ready = "step";
    } catch (error) {
      if (now !== turn || !stages.isConnected) return;
      if (found) written.splice(0, Infinity, ...found.written.map((each) => each.id)); // what was refused is taken back
      asking.problem.textContent = error.message;
      view.dataset.ready = "problem";
    } finally {
      if (now === turn) asking.button.disabled = false;
    }
  }

  function write(id) {
    written.push(id);
    return ask();
  }

  function follow(ids) {
    written.splice(0, Infinity, ...ids);
    return ask();
  }

  async function finish() {
    for (let count = 0; count < FURTHEST && !found.over && view.dataset.ready !== "problem"; count++) await write(found.next.ids[0]);
  }

  function drawWritten() {
    const button = (label, act, off) => el("button", { type: "button", disabled: off, onclick: act }, label);
    const chips = found.written.map((each, place) => el("button", { type: "button", class: "chip", title: `P = ${percent(Math.exp(each.log_prob))}; click to go back before it`, onclick: () => follow(written.slice(0, place)) }, shown(each.label)));
    const total = found.written.reduce((sum, each) => sum + each.log_prob, 0);
    const end = found.over ? " It has its end." : "";
    soFar.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Written so far"),
      el("div", { class: "row" }, button("Back", () => follow(written.slice(0, -1)), !written.length), button("Most probable", () => write(found.next.ids[0]), found.over),
        button("Draw", () => write(found.next.ids[drawn(distribution(found.next, chosen).probs)]), found.over), button("To the end", finish, found.over))),
    el("div", { class: "row chips" }, ...(chips.length ? chips : [el("span", { class: "quiet" }, "nothing yet")])),
    el("p", { class: "note" }, found.written.length ? el("span", { class: "formula" }, `log P = Σ log P(token | tokens before) = ${fixed(total, 4)}`) : "The model has read the text and is about to write.", end));
  }

  function drawNext() {
    choices.hidden = !found || found.over;
    if (choices.hidden) return;
    const { probs, kept, others } = distribution(found.next, chosen);
    const rows = found.next.labels.slice(0, BARS).map((label, place) => ({ label, share: probs[place] }));
    const tail = probs.slice(BARS).reduce((sum, each) => sum + each, others);
    const out = found.next.others + probs.length - kept;
    const rest = `${tail > 0 ? `Others have ${percent(tail)} together.` : ""} ${chosen.k || chosen.p < 1 ? `${kept.toLocaleString()} may be drawn, ${out.toLocaleString()} are cut off.` : ""}`;
    const tell = (row) => {
      if (row === null) { nextNote.textContent = rest; return; }
      const logit = found.next.logits[row], own = Math.exp(logit - found.next.normaliser);
      nextNote.replaceChildren(el("b", {}, shown(rows[row].label)), " ", el("span", { class: "formula" }, `logit ${fixed(logit, 3)}; the model's P = exp(logit) / Σ exp = ${own.toFixed(4)}; drawn with P^(1/${chosen.temperature}) / Σ = ${rows[row].share.toFixed(4)}`));
    };
    next.replaceChildren(bars(rows, (row) => write(found.next.ids[row]), tell, room(choices, 390)));
    tell(null);
  }

  function drawSeen() {
    const kinds = found.attention;
    seen.hidden = !kinds.length;
    if (!kinds.length) return;
    const kind = kinds.find((each) => each.kind === chosen.kind) ?? kinds.find((each) => each.kind === "cross") ?? kinds[0];
    if (chosen.kind) [chosen.kind = ""] = among("attention", [chosen.kind], kinds.map((each) => each.kind));
    const layers = kind.heads.length, layer = chosen.layer === "" ? layers - 1 : within("layer", Number(chosen.layer), layers);
    if (chosen.layer !== "") chosen.layer = layer;
    const all = chosen.all && kind.steps, columns = kind.columns.map(shown);
    const names = [...found.written.map((each) => shown(each.label)), ...(found.over ? [] : ["next"])];
    const rows = all ? names : ["mean", ...Array.from({ length: kind.heads[layer] }, (_, head) => `head ${head + 1}`)];
    const weights = all ? part(found.array(kind.steps), kind.steps.shape, layer) : withMean(part(found.array(kind.last), kind.last.shape, layer), kind.heads[layer], columns.length);
    const note = el("p", { class: "note" }), change = (key) => (value) => { chosen[key] = value; remember(); drawSeen(); };
    const told = matrix(rows, columns, weights, (spot) => tellSpot(note, spot, told, rows, columns, all), { room: room(seen, 720, 90), high: 24 });
    note.textContent = told.left;
    seen.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "What it looks at meanwhile"),
      kinds.length > 1 ? choice("Attention", kinds.map((each) => [each.kind, each.kind === "cross" ? "the source" : "its own text"]), kind.kind, change("kind")) : null,
      kind.steps ? choice("Steps", [[false, "This step"], [true, "All steps"]], Boolean(all), change("all")) : null,
      layers > 1 ? numbered("Layer", layers, layer, change("layer")) : null,
      saver(() => seen.querySelector(".canvas > svg"), () => ({ ...found, array: undefined, kind: kind.kind, layer: layer + 1, rows, columns, weights: [...weights] }), "step")),
    el("div", { class: "canvas" }, told.figure), note);
    if (kind.kind !== "cross") seen.querySelector(".canvas").scrollLeft = 1e6; // the last tokens matter most
  }
}

/** The values of one layer. */
function part(values, shape, layer) {
  const size = shape.slice(1).reduce((product, each) => product * each, 1);
  return values.subarray(layer * size, (layer + 1) * size);
}

/** The heads that a layer has, below their mean. */
function withMean(weights, heads, keys) {
  const found = new Float32Array((heads + 1) * keys);
  found.set(weights.subarray(0, heads * keys), keys);
  for (let place = 0; place < heads * keys; place++) found[place % keys] += weights[place] / heads;
  return found;
}

function tellSpot(note, spot, told, rows, columns, all) {
  if (!spot) { note.textContent = told.left; return; }
  const who = all ? ["before ", el("b", {}, rows[spot.row])] : [rows[spot.row] === "mean" ? "the mean of the heads" : rows[spot.row]];
  note.replaceChildren(...who, " gives ", el("b", {}, columns[spot.column]), " ", el("span", { class: "formula" }, `${spot.weight.toFixed(4)} = softmax(score(q, k))${all || rows[spot.row] === "mean" ? ", mean over heads" : ""}`));
}
