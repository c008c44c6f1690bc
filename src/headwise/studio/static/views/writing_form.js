// What Step and Intervene ask for: a run that writes, and a text.
import { el, field } from "../dom.js";
import { fill, runsFor } from "./run_list.js";

const LABELS = { target: "Text to read", continuation: "Text to go on with" }; // by what the run writes

const LACKING = "No run here writes texts yet; train one with `headwise demo`, and it shows up here.";

/** `extra`: further fields; `ask()` hears of each submission; once `ready`, the runs are there. What goes wrong is told in
 * `problem`, what is to be said of a text in `remark`. */
export function writingForm(state, verb, ask, extra = []) {
  const problem = el("p", { class: "problem", role: "alert" }), remark = el("p", { class: "note" });
  const run = el("select", { onchange: () => named() }), text = el("textarea", { spellcheck: "false", dir: "auto" });
  const textField = field("Text", text), button = el("button", { class: "main", type: "submit" }, verb);
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); ask(); } },
    field("Run", run), textField, ...extra, button, remark, problem);
  let runs = [];
  text.value = state.text ?? "";
  const writes = (name = run.value) => runs.find((each) => each.name === name)?.writes ?? "";
  return { form, problem, remark, button, writes, ready: listed(), asked: () => ({ run: run.value, text: text.value }) };

  async function listed() {
    const found = await runsFor(form, (each) => each.reads !== "images" && each.writes, LACKING).catch((error) => ({ runs: [], problem: error.message }));
    runs = found.runs;
    problem.textContent = found.problem || fill(run, runs, state.run);
    named();
  }

  function named() {
    textField.firstChild.textContent = LABELS[writes()] ?? "Text";
  }
}
