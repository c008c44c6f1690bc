// The beam search of a text as an interactive tree.
import { post } from "../api.js";
import { el } from "../dom.js";
import { pathTo, drawTree } from "../draw/tree.js";
import { formatFixed, visible } from "../format.js";
import { runLong } from "../progress.js";
import { exportButtons } from "./export.js";

const WIDTHS = [2, 3, 4, 6, 8];
const IDLE = "Follow several hypotheses at once and see which ones are kept.";
const FATES = {
  extended: "was extended", pruned: "was pruned: the beam had better ones", ended: "ended", stopped: "was open when the search stopped",
};

/** `getRequest()`: the run, the text and the maximum length; `follow(ids)` continues from a hypothesis. */
export function createBeamPanel(state, getRequest, follow, remember) {
  const panel = el("section", { class: "panel", "aria-label": "Beam search" }), drawing = el("div", { class: "canvas" }), note = el("p", { class: "note" });
  const width = el("select", { "aria-label": "Beam width" }, ...WIDTHS.map((each) => el("option", { value: each, selected: each === Number(state.beams ?? 4) }, `${each} beams`)));
  const button = el("button", { type: "button", onclick: () => search() }, "Search");
  let result = null, requested = state.beams ?? "";
  const tools = el("div", { class: "toolbar" }, el("h2", {}, "Beam search"), el("div", { class: "row" }, width, button), exportButtons(() => drawing.querySelector("svg"), () => result, "beams"));
  panel.append(tools, drawing, note);
  note.textContent = IDLE;
  return { panel, search, clear, count: () => requested };

  function clear() {
    result = null;
    requested = "";
    drawing.replaceChildren();
    note.textContent = IDLE;
  }

  async function search() {
    button.disabled = true;
    requested = width.value;
    remember();
    try {
      result = await runLong("Searching", (task) => post("/api/step/beams", { ...getRequest(), beams: Number(width.value) }, task));
      drawing.replaceChildren(drawTree(result.nodes, (index) => follow(pathTo(result.nodes, index).map((at) => result.nodes[at].token)), onHover));
      onHover(null);
    } catch (error) {
      note.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  }

  function onHover(index) {
    if (index === null) {
      note.replaceChildren("Best: ", el("b", {}, result.text), ` with a score of ${formatFixed(result.score, 4)}. Numbers are log P so far; click a hypothesis to continue from it.`);
      return;
    }
    const node = result.nodes[index], before = node.parent < 0 ? 0 : result.nodes[node.parent].log_prob;
    const words = pathTo(result.nodes, index).map((at) => visible(result.nodes[at].label)).join(" ");
    const sum = `log P = ${formatFixed(before, 3)} + (${formatFixed(node.log_prob - before, 3)}) = ${formatFixed(node.log_prob, 3)}`;
    const score = node.fate === "ended" ? `; score = log P / ((5 + ${node.step + 1}) / 6)^${result.alpha} = ${formatFixed(node.score, 4)}` : "";
    note.replaceChildren(el("b", {}, words), ` ${FATES[node.fate]}. `, el("span", { class: "formula" }, sum + score));
  }
}
