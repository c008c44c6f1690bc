// Fold: the structure that a run predicts for a chain, maps of pairs, confidence, and attention.
import { getText, postPacked } from "../api.js";
import { announce, availableWidth, buttonGroup, el, field, keepFocus, onThemeChange } from "../dom.js";
import { drawLegend } from "../draw/curve.js";
import { drawPlot } from "../draw/plot.js";
import { CONFIDENCE_BANDS, confidenceColour, createTrace, positionColour } from "../draw/trace.js";
import { runLong } from "../progress.js";
import { exportButtons } from "./export.js";
import { createAttentionPanel, createPairPanel } from "./fold_maps.js";
import { fillRuns, findRuns } from "./run_list.js";

const LEAD = "A chain through a folding model: the structure it predicts, what it expects of each pair of residues, how sure it is, and which edges and rows attend to which.";
const NO_FOLD_RUNS = "No run here folds chains yet; train one with `headwise train experiments/chains-alphafold2.toml`, and it appears here.";
const HINT = "Drag to turn, with two fingers to zoom; arrow keys turn, + and − zoom, Home resets.";
const TRUE_COLOUR = "#9aa1ad";

export async function fold(view, state, keep) {
  const problem = el("p", { class: "problem", role: "alert" });
  const chosen = {
    colour: state.colour ?? "confidence", true: state.true !== "0", map: Number(state.map ?? 0), kind: state.kind ?? "",
    layer: state.layer ?? "", head: state.head ?? "", line: state.line ?? "",
  };
  const run = el("select"), chain = el("input", { type: "number", min: 1, max: 100000, step: 1, value: state.chain ?? "1" });
  const sequence = el("textarea", { spellcheck: "false", placeholder: "MKV… or >name and an alignment in A3M" });
  sequence.value = state.sequence ?? "";
  const button = el("button", { class: "main", type: "submit" }, "Fold");
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); send(); } },
    field("Run", run), field("Test chain", chain), field("or a sequence or alignment", sequence), button, problem);
  const structure = el("section", { class: "panel", "aria-label": "Structure" }, el("p", { class: "note" }, "Choose a run and a chain, then press Fold."));
  const confidence = el("section", { class: "panel", "aria-label": "Confidence", hidden: true });
  const remember = () => keep({
    ...request, colour: chosen.colour, true: chosen.true ? "" : "0", map: chosen.map, kind: chosen.kind, layer: chosen.layer, head: chosen.head, line: chosen.line,
  });
  let result = null, request = {}, turns = 0, trace = null;
  const pairs = createPairPanel(chosen, remember), attention = createAttentionPanel(chosen, remember);
  view.replaceChildren(el("h1", {}, "Fold"), el("p", { class: "lead" }, LEAD),
    el("div", { class: "columns" }, form, el("div", { class: "stack" }, structure, confidence, el("div", { class: "two" }, pairs.panel, attention.panel))));
  onThemeChange(structure, () => result && draw());
  const { runs, problem: none } = await findRuns(form, (each) => each.input === "chains", NO_FOLD_RUNS).catch((error) => ({ runs: [], problem: error.message }));
  problem.textContent = none || fillRuns(run, runs, state.run);
  if (state.run && !problem.textContent) await send();
  else if (form.isConnected) view.dataset.ready = "form";

  async function send() {
    const turn = ++turns, current = () => turn === turns && form.isConnected;
    const next = { run: run.value, chain: chain.value, sequence: sequence.value };
    problem.textContent = "";
    delete view.dataset.ready;
    button.disabled = true;
    try {
      const answer = await runLong("Folding", (task) => postPacked("/api/fold", { run: next.run, alignment: next.sequence, chain: Math.max(0, Math.round(Number(next.chain) || 1) - 1) }, task));
      if (!current()) return;
      [result, request] = [answer, next];
      announce(`${next.run} folded ${result.chain}, ${result.sequence.length} residues`);
      await draw();
      if (current()) view.dataset.ready = "fold";
    } catch (error) {
      if (!current()) return;
      problem.textContent = error.message;
      view.dataset.ready = "problem";
    } finally {
      if (turn === turns) button.disabled = false;
    }
  }

  async function draw() {
    drawStructure();
    drawConfidence();
    pairs.panel.hidden = attention.panel.hidden = false; // both, before their widths are measured
    pairs.show(result, choose);
    await attention.show(result);
    remember();
  }

  const residue = (index) => `${result.sequence[index]}${index + 1}`;

  function choose(index) {
    trace?.choose(index);
  }

  function drawStructure() {
    const canvas = el("canvas", { class: "trace", tabindex: 0, role: "img", "data-key": "trace", "aria-label": `Trace of ${result.sequence.length} C alpha atoms. ${HINT}` });
    const note = el("p", { class: "note" });
    const describe = (index) => note.replaceChildren(...(index === null ? [HINT] : [el("b", {}, residue(index)), ` ${result.confidence_name} ${result.confidence[index].toFixed(1)}`, ...(Number.isFinite(result.lddt?.[index]) ? [`, lDDT ${result.lddt[index].toFixed(1)}`] : [])]));
    const change = (key) => (value) => { chosen[key] = value; remember(); keepFocus(structure, drawStructure); };
    const scores = Object.entries(result.scores).map(([name, value]) => `${name} ${Number(value.toPrecision(3))}`).join(" · ");
    const legend = chosen.colour === "position" ? [["first residue", positionColour(0)], ["last residue", positionColour(1)]] : CONFIDENCE_BANDS;
    structure.replaceChildren(
      el("div", { class: "toolbar" }, el("h2", {}, result.chain), buttonGroup("Colour", [["confidence", result.confidence_name], ["position", "position"]], chosen.colour, change("colour")),
        result.true_trace ? buttonGroup("True structure", [[true, "with the truth"], [false, "without"]], chosen.true, change("true")) : null,
        exportFiles(canvas)),
      canvas, el("div", { class: "row note" }, ...legend.map(([name, colour]) => {
        const swatch = el("span", { class: "swatch" });
        swatch.style.background = colour;
        return el("span", {}, swatch, name);
      }), result.true_trace && chosen.true ? el("span", {}, trueSwatch(), "true structure, superimposed") : null),
      note, el("p", { class: "note" }, scores || "The true structure of this chain is not known."));
    trace = createTrace(canvas, { onHover: describe });
    const last = Math.max(1, result.trace.length - 1);
    const colours = result.trace.map((_, index) => (chosen.colour === "position" ? positionColour(index / last) : confidenceColour(result.confidence[index])));
    const truth = result.true_trace && chosen.true ? [{ points: result.true_trace, colours: result.trace.map(() => TRUE_COLOUR), width: 3 }] : [];
    trace.show([{ points: result.trace, colours, width: 6 }, ...truth]);
    describe(null);
  }

  function trueSwatch() {
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = TRUE_COLOUR;
    return swatch;
  }

  /** The trace as PNG, the structure as PDB, and everything as a page. */
  function exportFiles(canvas) {
    const save = async (content, name, type) => {
      const link = el("a", { href: URL.createObjectURL(new Blob([await content], { type })), download: name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    };
    const files = {
      PNG: () => new Promise((done) => { canvas.toBlob((blob) => done(save(blob, "structure.png", "image/png"))); }),
      PDB: () => save(getText(`/api/fold/${result.name}/pdb`), "structure.pdb", "chemical/x-pdb"),
      HTML: () => save(getText(`/api/fold/${result.name}/page?title=${encodeURIComponent(`${request.run}: ${result.chain}`)}`), "folding.html", "text/html"),
    };
    const handler = (write) => async () => { try { await write(); } catch (error) { problem.textContent = error.message; } };
    return el("div", { class: "row export", role: "group", "aria-label": "Export" }, ...Object.entries(files).map(([name, write]) => el("button", { type: "button", "data-key": `structure: ${name}`, onclick: handler(write) }, name)));
  }

  function drawConfidence() {
    const points = (values) => values.flatMap((value, index) => (value === null ? [] : [[index + 1, value]]));
    const series = [{ name: result.confidence_name, points: points(result.confidence) }, ...(result.lddt ? [{ name: "lDDT-Cα", points: points(result.lddt) }] : [])];
    const note = el("p", { class: "note" }), hint = "Predicted confidence of each residue, and where the truth is known its lDDT-Cα; point at the curve, or use the arrow keys.";
    const describe = (found) => {
      note.replaceChildren(...(found ? [el("b", {}, residue(found[0].x - 1)), ` ${found.map((each) => `${each.name} ${each.y.toFixed(1)}`).join(", ")}`] : [hint]));
      choose(found ? found[0].x - 1 : null);
    };
    const plot = drawPlot(series, { x: { label: "residue" }, y: { label: "0 to 100" }, width: availableWidth(structure, 900), height: 230, onHover: describe });
    confidence.hidden = false;
    confidence.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Confidence along the chain"), drawLegend(series.map((each) => each.name)),
      exportButtons(() => plot, () => ({ ...request, sequence: result.sequence, confidence: result.confidence, lddt: result.lddt }), "confidence")), plot, note,
    ...(result.states.length ? [el("pre", { class: "states", tabindex: 0, "aria-label": "Secondary structure" }, [["sequence", result.sequence], ...result.states].map(([name, letters]) => `${name.padEnd(10)}${letters}`).join("\n"))] : []));
    describe(null);
  }
}
