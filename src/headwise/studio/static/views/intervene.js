// Intervene: hide tokens, silence heads, and see what becomes of the output.
import { post } from "../api.js";
import { el, field, refocused, say, themed } from "../dom.js";
import { pairs } from "../draw/bars.js";
import { readable, signed } from "../draw/colours.js";
import { effects } from "../draw/effects.js";
import { lens as drawLens } from "../draw/lens.js";
import { fixed, percent, shown } from "../words.js";
import { saver } from "./saving.js";
import { writingForm } from "./writing_form.js";

const KINDS = { encoder: "Encoder", decoder: "Decoder, its own text", cross: "Decoder, the source" };
const split = (text) => (text ?? "").split(",").filter(Boolean);
const told = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

export async function intervene(view, state, keep) {
  const target = el("input", { placeholder: "its own output" });
  target.value = state.target ?? "";
  const off = new Set(split(state.off)), hidden = new Set(split(state.hidden).map(Number)); // "cross.0.2", or "cross.0" for all heads
  let found = null, given = null, ids = [], turn = 0, measured = blank(); // given: run, text and output of what is shown
  const asking = writingForm(state, "Look", () => begin(written(), { hidden: [], heads: [], layers: [] }), [field("Output to judge", target)]);
  const panel = (label) => el("section", { class: "panel", "aria-label": label });
  const output = panel("Output"), tokens = panel("Tokens"), heads = panel("Heads"), guesses = panel("Logit lens");
  const stages = el("div", { class: "stack" }, output, tokens, heads, guesses);
  stages.hidden = true;
  view.replaceChildren(el("h1", {}, "Intervene"), el("p", { class: "lead" }, "What does the output depend on? Hide a token from attention or silence a head, and see the probability of what the model had written."),
    el("div", { class: "columns" }, asking.form, stages));
  themed(stages, () => found && (draw(), measured.lens && drawGuesses()));
  await asking.ready;
  if (state.text !== undefined && !asking.problem.textContent) await begin(written(), changes());
  if (stages.isConnected) view.dataset.ready ??= "form";

  function blank() {
    return { tokens: null, kinds: {}, lens: null };
  }

  function remember() {
    keep({ ...given, hidden: [...hidden].join(","), off: [...off].join(",") });
  }

  function written() {
    return { ...asking.asked(), target: target.value };
  }

  function about() {
    return { ...given, ids };
  }

  function changes() {
    const spots = [...off].map((each) => each.split(".")).map(([kind, ...rest]) => [kind, ...rest.map(Number)]);
    return { hidden: [...hidden], heads: spots.filter((spot) => spot.length === 3), layers: spots.filter((spot) => spot.length === 2) };
  }

  /** The output with and without the changes; nothing where it went wrong. */
  async function ask(next = about(), changed = changes(), fresh = measured) {
    const now = ++turn;
    asking.problem.textContent = "";
    delete view.dataset.ready;
    try {
      const answer = await post("/api/intervene", { ...next, ...changed });
      if (now !== turn || !stages.isConnected) return null; // a later click was faster, or another page is open
      measured = fresh;
      [found, ids, given] = [answer, answer.ids, { run: next.run, text: next.text, target: next.target }];
      if (!changed.hidden.length) hidden.clear();
      if (!changed.heads.length && !changed.layers.length) off.clear();
      asking.remark.textContent = found.remark;
      stages.hidden = false;
      remember();
      refocused(view, draw);
      return now;
    } catch (error) {
      if (now === turn && stages.isConnected) failed(error);
      return null;
    }
  }

  function failed(error) {
    asking.problem.textContent = error.message;
    view.dataset.ready = "problem";
  }

  async function begin(next, changed) {
    asking.button.disabled = true;
    const begun = await ask({ ...next, ids: [] }, changed, blank());
    asking.button.disabled = false;
    if (begun) await measure();
  }

  /** How much each token, head and layer matters, layer by layer, so that other questions need not wait long. */
  async function measure() {
    const mine = measured, current = () => mine === measured && stages.isConnected;
    try {
      mine.lens = await post("/api/intervene/lens", about());
      if (current()) drawGuesses();
      if (found.hideable && current()) mine.tokens = (await post("/api/intervene/tokens", about())).tokens;
      if (current()) refocused(view, drawTokens);
      for (const kind of found.kinds) {
        mine.kinds[kind.name] = [];
        for (let layer = 0; layer < kind.layers.length && current(); layer++) {
          mine.kinds[kind.name].push(await post("/api/intervene/heads", { ...about(), kind: kind.name, layer }));
          if (current()) refocused(view, drawHeads);
        }
      }
      if (current()) view.dataset.ready = "intervene";
    } catch (error) {
      if (current()) failed(error);
    }
  }

  async function change(set, key) {
    if (!set.delete(key)) set.add(key);
    if (await ask()) {
      view.dataset.ready = "intervene";
      say(`log P changed by ${told(sum("after") - sum("before"))}`);
    }
  }

  function sum(which) {
    return found.output.reduce((total, each) => total + each[which], 0);
  }

  function draw() {
    drawOutput();
    drawTokens();
    drawHeads();
  }

  function drawOutput() {
    const changed = hidden.size + off.size > 0, before = sum("before"), after = sum("after"), note = el("p", { class: "note" });
    const rest = changed ? [el("span", { class: "swatch before" }), "before ", el("span", { class: "swatch after" }), "after"] : [found.kinds.length ? "Bars: P of each token. Hide or silence something below, and others stand beside them." : "This model has no attention to change; the lens shows what its layers would write."];
    const tell = (place) => {
      if (place === null) { note.replaceChildren(...rest); return; }
      const { label, before: was, after: is } = found.output[place];
      const then = changed ? ` before, ${Math.exp(is).toFixed(4)} after; log P ${fixed(was, 3)} ${told(is - was)}` : `; log P ${fixed(was, 3)}`;
      note.replaceChildren(el("b", {}, shown(label)), " ", el("span", { class: "formula" }, `P = exp(log P) = ${Math.exp(was).toFixed(4)}${then}`));
    };
    tell(null);
    const row = (name, text, number) => [el("dt", {}, name), el("dd", {}, el("span", { class: "formula" }, text || "(nothing)"), number ? el("span", { class: "quiet" }, ` ${number}`) : null)];
    const clear = el("button", { type: "button", disabled: !changed, onclick: () => { hidden.clear(); off.clear(); ask().then((now) => now && (view.dataset.ready = "intervene")); } }, "Undo all");
    output.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Output"), clear, saver(() => output.querySelector(".canvas > svg"), () => ({ ...found, ...changes(), measured }), "intervene")),
      el("dl", { class: "figures" }, ...row("judged", found.text, `log P = Σ log P(token) = ${fixed(before, 3)}, P ${percent(Math.exp(before))}`),
        ...(changed ? [...row("changed", found.text, `log P = ${fixed(after, 3)} (${told(after - before)}), P ${percent(Math.exp(after))}`), ...row("now writes", found.own)] : [])),
      el("div", { class: "canvas" }, pairs(found.output.map(({ label, before: was, after: is }) => ({ label, before: Math.exp(was), after: changed ? Math.exp(is) : null })), tell)), note);
  }

  function drawTokens() {
    tokens.hidden = !found.kinds.length;
    if (!found.hideable) {
      tokens.replaceChildren(el("h2", {}, "Hide a token"), el("p", { class: "note" }, "None can be hidden here: this model does not look at its tokens one by one."));
      return;
    }
    const shade = signed(), all = measured.tokens, scale = all ? Math.max(0.1, ...all.map(Math.abs)) : 1, note = el("p", { class: "note" });
    const rest = all ? "Colours: how log P of the output changes when that token alone is hidden from all attention." : "Measuring each of them …";
    const chips = found.read.map((label, place) => {
      const value = all?.[place], tell = () => { note.textContent = value === undefined ? rest : `hiding “${shown(label)}” changes log P by ${told(value)}`; };
      const chip = el("button", { type: "button", class: "chip", "data-key": `token-${place}`, "aria-pressed": String(hidden.has(place)), "aria-label": `hide ${shown(label)}, token ${place + 1}`, onclick: () => change(hidden, place), onmouseenter: tell, onfocus: tell, onmouseleave: () => { note.textContent = rest; } }, shown(label));
      if (value !== undefined) {
        const rgb = shade(value / scale);
        chip.style.background = `rgb(${rgb})`;
        chip.style.color = readable(rgb);
      }
      return chip;
    });
    note.textContent = rest;
    tokens.replaceChildren(el("h2", {}, "Hide a token"), el("div", { class: "row chips" }, ...chips), note);
  }

  function drawHeads() {
    heads.hidden = !found.kinds.length;
    const note = el("p", { class: "note" }), every = Object.values(measured.kinds).flat(), values = every.flatMap((layer) => layer.heads);
    const scale = Math.max(0.1, ...values.map(Math.abs));
    const rest = `Numbers: the change of log P of the output when that head alone gives zeros. Full colour is ±${scale.toFixed(1)}.`;
    const grids = found.kinds.map((kind) => {
      const key = (layer, head) => (head === null ? `${kind.name}.${layer}` : `${kind.name}.${layer}.${head}`);
      const tell = (name, value) => { note.textContent = name === null ? rest : `${KINDS[kind.name] ?? kind.name}, ${name}: ${value === undefined ? "not measured yet" : `log P changes by ${told(value)}`}`; };
      return el("div", {}, el("h3", {}, KINDS[kind.name] ?? kind.name), effects(kind.layers, measured.kinds[kind.name] ?? [], scale, { key, tell, off: (layer, head) => off.has(key(layer, head)), toggle: (layer, head) => change(off, key(layer, head)) }));
    });
    note.textContent = rest;
    heads.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Silence a head"), saver(() => [...heads.querySelectorAll("svg")], () => measured.kinds, "heads")), el("div", { class: "flow" }, ...grids), note);
  }

  function drawGuesses() {
    const { tokens: written, layers } = measured.lens, note = el("p", { class: "note" });
    guesses.hidden = !layers.length;
    const rest = "Each layer's stream through the last norm and the vocabulary, as if no layer followed. Framed: the token that was written.";
    const tell = (row, place) => {
      if (row === null) { note.textContent = rest; return; }
      const layer = layers[row], list = layer.guesses[place].map((guess, rank) => `${shown(guess)} ${percent(layer.probs[place][rank])}`).join(", ");
      note.replaceChildren(`layer ${row + 1}: ${list}; `, el("b", {}, shown(written[place])), " ", el("span", { class: "formula" }, `has rank ${layer.ranks[place]}, P = softmax(head(norm(x))) = ${Math.exp(layer.log_probs[place]).toFixed(4)}`));
    };
    note.textContent = rest;
    guesses.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Logit lens"), saver(() => guesses.querySelector(".canvas > svg"), () => measured.lens, "lens")),
      el("div", { class: "canvas" }, drawLens(written, layers, tell)), note);
  }
}
