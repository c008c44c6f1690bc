// The beam search of a text, which one can climb about in.
import { post } from "../api.js";
import { el } from "../dom.js";
import { path, tree } from "../draw/tree.js";
import { fixed, shown } from "../words.js";
import { saver } from "./saving.js";

const WIDTHS = [2, 3, 4, 6, 8];
const IDLE = "Follow several hypotheses at once, and see which of them live.";
const FATES = {
  lived: "went on", died: "died: the beam had better ones", ended: "ended", left: "was left: it could no longer win",
};

/** `asked()`: the text and the longest output; `follow(ids)` goes on from a hypothesis. */
export function beamPanel(state, asked, follow, remember) {
  const panel = el("section", { class: "panel", "aria-label": "Beam search" }), drawing = el("div", { class: "canvas" }), note = el("p", { class: "note" });
  const width = el("select", { "aria-label": "Hypotheses at once" }, ...WIDTHS.map((each) => el("option", { value: each, selected: each === Number(state.beams ?? 4) }, `${each} beams`)));
  const button = el("button", { type: "button", onclick: () => search() }, "Search");
  let found = null, wanted = state.beams ?? "";
  const tools = el("div", { class: "toolbar" }, el("h2", {}, "Beam search"), el("div", { class: "row" }, width, button), saver(() => drawing.querySelector("svg"), () => found, "beams"));
  panel.append(tools, drawing, note);
  note.textContent = IDLE;
  return { panel, search, clear, count: () => wanted };

  function clear() {
    found = null;
    wanted = "";
    drawing.replaceChildren();
    note.textContent = IDLE;
  }

  async function search() {
    button.disabled = true;
    wanted = width.value;
    remember();
    try {
      found = await post("/api/step/beams", { ...asked(), beams: Number(width.value) });
      drawing.replaceChildren(tree(found.nodes, (number) => follow(path(found.nodes, number).map((at) => found.nodes[at].token)), tell));
      tell(null);
    } catch (error) {
      note.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  }

  function tell(number) {
    if (number === null) {
      note.replaceChildren("Best: ", el("b", {}, found.text), ` with a score of ${fixed(found.score, 4)}. Numbers are log P so far; click a hypothesis to go on from it.`);
      return;
    }
    const node = found.nodes[number], before = node.parent < 0 ? 0 : found.nodes[node.parent].log_prob;
    const words = path(found.nodes, number).map((at) => shown(found.nodes[at].label)).join(" ");
    const sum = `log P = ${fixed(before, 3)} + (${fixed(node.log_prob - before, 3)}) = ${fixed(node.log_prob, 3)}`;
    const score = node.fate === "ended" ? `; score = log P / ((5 + ${node.step + 1}) / 6)^${found.alpha} = ${fixed(node.score, 4)}` : "";
    note.replaceChildren(el("b", {}, words), ` ${FATES[node.fate]}. `, el("span", { class: "formula" }, sum + score));
  }
}
