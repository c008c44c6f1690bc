// What Step and Intervene ask for: a run that writes, and a text.
import { get } from "../api.js";
import { el, field } from "../dom.js";

const WRITERS = { transduce: "Text to read", denoise: "Text to read", "language-model": "Text to go on with", "": "Text" };

/** `extra`: further fields; `ask()` hears of each submission; once `ready`, the runs are there. What goes wrong is told in
 * `problem`. */
export function writingForm(state, verb, ask, extra = []) {
  const problem = el("p", { class: "problem", role: "alert" });
  const run = el("select", { onchange: () => named() }), text = el("textarea", { spellcheck: "false" });
  const textField = field("Text", text), button = el("button", { class: "main", type: "submit" }, verb);
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); ask(); } },
    field("Run", run), textField, ...extra, button, problem);
  let runs = [];
  text.value = state.text ?? "";
  const task = () => runs.find((each) => each.name === run.value)?.task ?? "";
  return { form, problem, button, task, ready: listed(), asked: () => ({ run: run.value, text: text.value }) };

  async function listed() {
    const all = await get("/api/runs").catch((error) => { problem.textContent = error.message; return []; });
    runs = all.filter((each) => each.ready && each.task in WRITERS);
    if (!runs.length) problem.textContent ||= "No run here writes texts; open the studio with one that does.";
    run.append(...runs.map((each) => el("option", { value: each.name }, each.model ? `${each.name} (${each.model})` : each.name)));
    if (runs.some((each) => each.name === state.run)) run.value = state.run;
    named();
  }

  function named() {
    textField.firstChild.textContent = WRITERS[task()];
  }
}
