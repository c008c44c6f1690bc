// The form of Step and Intervene: a generative run and a text.
import { el, field } from "../dom.js";
import { fillRuns, findRuns } from "./run_list.js";

const LABELS = { target: "Source text", continuation: "Prompt" }; // by what the run generates

const NO_GENERATIVE_RUNS = "No run here generates text yet; train one with `headwise demo`, and it appears here.";

/** `extra`: further fields; `submit()` is called on each submission; `ready` resolves when the runs are listed. `problem` shows
 * errors, `note` the tokens that are not in the vocabulary. */
export function createGenerationForm(state, verb, submit, extra = []) {
  const problem = el("p", { class: "problem", role: "alert" }), note = el("p", { class: "note" });
  const run = el("select", { onchange: () => updateLabel() }), text = el("textarea", { spellcheck: "false", dir: "auto" });
  const textField = field("Text", text), button = el("button", { class: "main", type: "submit" }, verb);
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); submit(); } },
    field("Run", run), textField, ...extra, button, note, problem);
  let runs = [];
  text.value = state.text ?? "";
  const output = (name = run.value) => runs.find((each) => each.name === name)?.output ?? "";
  return { form, problem, note, button, output, ready: loadRuns(), getRequest: () => ({ run: run.value, text: text.value }) };

  async function loadRuns() {
    const list = await findRuns(form, (each) => each.input === "texts" && each.output, NO_GENERATIVE_RUNS).catch((error) => ({ runs: [], problem: error.message }));
    runs = list.runs;
    problem.textContent = list.problem || fillRuns(run, runs, state.run);
    updateLabel();
  }

  function updateLabel() {
    textField.firstChild.textContent = LABELS[output()] ?? "Text";
  }
}
