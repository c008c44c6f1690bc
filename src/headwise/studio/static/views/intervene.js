// Intervene: hide tokens or ablate heads, and see how the output changes.
import { post } from "../api.js";
import { el, field, keepFocus, announce, onThemeChange } from "../dom.js";
import { drawPairedBars } from "../draw/bars.js";
import { textColour, signedColour } from "../draw/colours.js";
import { drawEffects } from "../draw/effects.js";
import { drawLens } from "../draw/lens.js";
import { formatFixed, formatPercent, visible } from "../format.js";
import { runLong } from "../progress.js";
import { exportButtons } from "./export.js";
import { createGenerationForm } from "./generation_form.js";

const KINDS = { encoder: "Encoder self-attention", decoder: "Decoder self-attention", cross: "Cross-attention" };
const split = (text) => (text ?? "").split(",").filter(Boolean);
const formatChange = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

export async function intervene(view, state, keep) {
  const target = el("input", { placeholder: "the model's own output" });
  target.value = state.target ?? "";
  const off = new Set(split(state.off)), hidden = new Set(split(state.hidden).map(Number)); // "cross.0.2", or "cross.0" for all heads
  let result = null, request = null, ids = [], turn = 0, measured = blank(); // request: the run, text and output that are shown
  const form = createGenerationForm(state, "Score", () => start(readForm(), { hidden: [], heads: [], layers: [] }), [field("Output to score", target)]);
  const panel = (label) => el("section", { class: "panel", "aria-label": label });
  const output = panel("Output"), tokens = panel("Tokens"), heads = panel("Heads"), lensPanel = panel("Logit lens");
  const panels = el("div", { class: "stack" }, output, tokens, heads, lensPanel);
  panels.hidden = true;
  view.replaceChildren(el("h1", {}, "Intervene"), el("p", { class: "lead" }, "Ablation: hide a token from attention or set a head to zero, and see how the probability of the output changes."),
    el("div", { class: "columns" }, form.form, panels));
  onThemeChange(panels, () => result && (draw(), measured.lens && drawLensPanel()));
  await form.ready;
  if (state.text !== undefined && !form.problem.textContent) await start(readForm(), changes());
  if (panels.isConnected) view.dataset.ready ??= "form";

  function blank() {
    return { tokens: null, kinds: {}, lens: null };
  }

  function remember() {
    keep({ ...request, hidden: [...hidden].join(","), off: [...off].join(",") });
  }

  function readForm() {
    return { ...form.getRequest(), target: target.value };
  }

  function scoredRequest() {
    return { ...request, ids };
  }

  function changes() {
    const spots = [...off].map((each) => each.split(".")).map(([kind, ...hint]) => [kind, ...hint.map(Number)]);
    return { hidden: [...hidden], heads: spots.filter((spot) => spot.length === 3), layers: spots.filter((spot) => spot.length === 2) };
  }

  /** Request the output with and without the ablations; null if it failed. */
  async function send(next = scoredRequest(), changed = changes(), fresh = measured) {
    const now = ++turn;
    form.problem.textContent = "";
    delete view.dataset.ready;
    try {
      const answer = await post("/api/intervene", { ...next, ...changed });
      if (now !== turn || !panels.isConnected) return null; // a later request is under way, or another page is open
      measured = fresh;
      [result, ids, request] = [answer, answer.ids, { run: next.run, text: next.text, target: next.target }];
      if (!changed.hidden.length) hidden.clear();
      if (!changed.heads.length && !changed.layers.length) off.clear();
      form.note.textContent = result.note;
      panels.hidden = false;
      remember();
      keepFocus(view, draw);
      return now;
    } catch (error) {
      if (now === turn && panels.isConnected) failed(error);
      return null;
    }
  }

  function failed(error) {
    form.problem.textContent = error.message;
    view.dataset.ready = "problem";
  }

  async function start(next, changed) {
    form.button.disabled = true;
    const started = await send({ ...next, ids: [] }, changed, blank());
    form.button.disabled = false;
    if (started) await measure();
  }

  /** Measure the effect of each token, head and layer. One request per layer, so that others need not wait long. */
  async function measure() {
    const mine = measured, current = () => mine === measured && panels.isConnected;
    try {
      mine.lens = await post("/api/intervene/lens", scoredRequest());
      if (current()) drawLensPanel();
      if (current()) await runLong("Measuring", (task) => sweep(mine, current, task));
      if (current()) view.dataset.ready = "intervene";
    } catch (error) {
      if (!current()) return;
      mine.stopped = true;
      if (!mine.tokens) keepFocus(view, drawTokens);
      failed(error);
    }
  }

  async function sweep(mine, current, task) {
    const layers = result.kinds.reduce((sum, kind) => sum + kind.layers.length, 0), parts = layers + result.hideable;
    let part = 0;
    const measureNext = (what, extra) => { task.begin(part++, parts); return post(`/api/intervene/${what}`, { ...scoredRequest(), ...extra }, task); };
    if (result.hideable) mine.tokens = (await measureNext("tokens", {})).tokens;
    if (current()) keepFocus(view, drawTokens);
    for (const kind of result.kinds) {
      mine.kinds[kind.name] = [];
      for (let layer = 0; layer < kind.layers.length && current(); layer++) {
        mine.kinds[kind.name].push(await measureNext("heads", { kind: kind.name, layer }));
        if (current()) keepFocus(view, drawHeads);
      }
    }
  }

  async function change(set, key) {
    if (!set.delete(key)) set.add(key);
    if (await send()) {
      view.dataset.ready = "intervene";
      announce(`log P changed by ${formatChange(sum("after") - sum("before"))}`);
    }
  }

  function sum(which) {
    return result.output.reduce((total, each) => total + each[which], 0);
  }

  function draw() {
    drawOutput();
    drawTokens();
    drawHeads();
  }

  function drawOutput() {
    const changed = hidden.size + off.size > 0, before = sum("before"), after = sum("after"), note = el("p", { class: "note" });
    const hint = changed ? [el("span", { class: "swatch before" }), "before ", el("span", { class: "swatch after" }), "after"] : [result.kinds.length ? "Bars: P of each token. Hide or ablate something below to compare." : "This model has no attention to ablate; the logit lens shows the predictions of its layers."];
    const onHover = (index) => {
      if (index === null) { note.replaceChildren(...hint); return; }
      const { label, before: was, after: is } = result.output[index];
      const then = changed ? ` before, ${Math.exp(is).toFixed(4)} after; log P ${formatFixed(was, 3)} ${formatChange(is - was)}` : `; log P ${formatFixed(was, 3)}`;
      note.replaceChildren(el("b", {}, visible(label)), " ", el("span", { class: "formula" }, `P = exp(log P) = ${Math.exp(was).toFixed(4)}${then}`));
    };
    onHover(null);
    const row = (name, text, number) => [el("dt", {}, name), el("dd", {}, el("span", { class: "formula" }, text || "(nothing)"), number ? el("span", { class: "quiet" }, ` ${number}`) : null)];
    const clear = el("button", { type: "button", disabled: !changed, onclick: () => { hidden.clear(); off.clear(); send().then((now) => now && (view.dataset.ready = "intervene")); } }, "Undo all");
    output.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Output"), clear, exportButtons(() => output.querySelector(".canvas > svg"), () => ({ ...result, ...changes(), measured }), "intervene")),
      el("dl", { class: "figures" }, ...row("scored", result.text, `log P = Σ log P(token) = ${formatFixed(before, 3)}, P ${formatPercent(Math.exp(before))}`),
        ...(changed ? [...row("ablated", result.text, `log P = ${formatFixed(after, 3)} (${formatChange(after - before)}), P ${formatPercent(Math.exp(after))}`), ...row("now generates", result.generated)] : [])),
      el("div", { class: "canvas" }, drawPairedBars(result.output.map(({ label, before: was, after: is }) => ({ label, before: Math.exp(was), after: changed ? Math.exp(is) : null })), onHover)), note);
  }

  function drawTokens() {
    tokens.hidden = !result.kinds.length;
    if (!result.hideable) {
      tokens.replaceChildren(el("h2", {}, "Hide a token"), el("p", { class: "note" }, "No token can be hidden: the attention of this model has no separate keys for tokens."));
      return;
    }
    const shade = signedColour(), all = measured.tokens, scale = all ? Math.max(0.1, ...all.map(Math.abs)) : 1, note = el("p", { class: "note" });
    const hint = all ? "Colours: the change of the output's log P when this token alone is hidden from all attention." : measured.stopped ? "Not measured." : "Measuring …";
    const chips = result.input.map((label, index) => {
      const value = all?.[index], onHover = () => { note.textContent = value === undefined ? hint : `hiding “${visible(label)}” changes log P by ${formatChange(value)}`; };
      const chip = el("button", { type: "button", class: "chip", "data-key": `token-${index}`, "aria-pressed": String(hidden.has(index)), "aria-label": `hide ${visible(label)}, token ${index + 1}`, onclick: () => change(hidden, index), onmouseenter: onHover, onfocus: onHover, onmouseleave: () => { note.textContent = hint; } }, visible(label));
      if (value !== undefined) {
        const rgb = shade(value / scale);
        chip.style.background = `rgb(${rgb})`;
        chip.style.color = textColour(rgb);
      }
      return chip;
    });
    note.textContent = hint;
    tokens.replaceChildren(el("h2", {}, "Hide a token"), el("div", { class: "row chips" }, ...chips), note);
  }

  function drawHeads() {
    heads.hidden = !result.kinds.length;
    const note = el("p", { class: "note" }), every = Object.values(measured.kinds).flat(), values = every.flatMap((layer) => layer.heads);
    const scale = Math.max(0.1, ...values.map(Math.abs));
    const hint = `Numbers: the change of the output's log P when this head alone is set to zero. Full colour is ±${scale.toFixed(1)}.`;
    const grids = result.kinds.map((kind) => {
      const key = (layer, head) => (head === null ? `${kind.name}.${layer}` : `${kind.name}.${layer}.${head}`);
      const onHover = (name, value) => { note.textContent = name === null ? hint : `${KINDS[kind.name] ?? kind.name}, ${name}: ${value === undefined ? "not measured yet" : `log P changes by ${formatChange(value)}`}`; };
      return el("div", {}, el("h3", {}, KINDS[kind.name] ?? kind.name), drawEffects(kind.layers, measured.kinds[kind.name] ?? [], scale, { key, onHover, isOff: (layer, head) => off.has(key(layer, head)), onToggle: (layer, head) => change(off, key(layer, head)) }));
    });
    note.textContent = hint;
    heads.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Ablate a head"), exportButtons(() => [...heads.querySelectorAll("svg")], () => measured.kinds, "heads")), el("div", { class: "flow" }, ...grids), note);
  }

  function drawLensPanel() {
    const { tokens: written, layers } = measured.lens, note = el("p", { class: "note" });
    lensPanel.hidden = !layers.length;
    const hint = "Each layer's residual stream through the final norm and the vocabulary head. Framed: the output token.";
    const onHover = (row, index) => {
      if (row === null) { note.textContent = hint; return; }
      const layer = layers[row], list = layer.top_tokens[index].map((guess, rank) => `${visible(guess)} ${formatPercent(layer.probs[index][rank])}`).join(", ");
      note.replaceChildren(`layer ${row + 1}: ${list}; `, el("b", {}, visible(written[index])), " ", el("span", { class: "formula" }, `has rank ${layer.ranks[index]}, P = softmax(head(norm(x))) = ${Math.exp(layer.log_probs[index]).toFixed(4)}`));
    };
    note.textContent = hint;
    lensPanel.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Logit lens"), exportButtons(() => lensPanel.querySelector(".canvas > svg"), () => measured.lens, "lens")),
      el("div", { class: "canvas" }, drawLens(written, layers, onHover)), note);
  }
}
