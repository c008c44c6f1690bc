// Form controls of several topics: run and text, example sentences, sliders, index lists.
import { get } from "../api.js";
import { el, field } from "../dom.js";
import { NO_TEXT_RUNS, fillRuns, findRuns } from "./run_list.js";

/** Links to a page with example sentences, for runs that know all of their tokens. */
export function exampleSentences(page, state = {}) {
  const list = el("ul", { class: "examples", "aria-label": "Example sentences" });
  let turn = 0;
  async function show(run) {
    const now = ++turn;
    const found = run ? await get(`/api/explain/sentences?run=${encodeURIComponent(run)}`).catch(() => []) : [];
    if (now !== turn) return;
    list.replaceChildren(...found.map((text) =>
      el("li", {}, el("a", { href: `#/${page}?${new URLSearchParams({ ...state, run, text })}` }, text))));
  }
  return { list, show };
}

/** A form for a run and a text; `submit({ run, text, target })` is called on each submission. */
export async function createTextForm(state, topic, submit) {
  const run = el("select", { onchange: () => updateFields() }), text = el("textarea", { spellcheck: "false", dir: "auto" }), target = el("input", { placeholder: "the model's own output" });
  const targetField = field("Output", target), examples = exampleSentences("explain", { topic });
  const getRequest = () => ({ run: run.value, text: text.value, target: targetField.hidden ? "" : target.value });
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); submit(getRequest()); } },
    field("Run", run), field("Text", text), examples.list, targetField, el("button", { class: "main", type: "submit" }, "Look"));
  const { runs, problem: none } = await findRuns(form, (each) => each.input === "texts", NO_TEXT_RUNS);
  const problem = none || fillRuns(run, runs, state.run);
  text.value = state.text ?? "";
  target.value = state.target ?? "";
  updateFields();
  return { form, getRequest, problem };

  function updateFields() {
    targetField.hidden = !(runs.find((each) => each.name === run.value)?.transduces ?? true);
    examples.show(run.value);
  }
}

/** A slider; `change(number)` is called on every move. */
export function slider(label, value, [min, max, step], change) {
  const output = el("output", {}, String(value));
  const input = el("input", { type: "range", min: min, max: max, step, oninput: () => { output.textContent = input.value; change(Number(input.value)); } });
  input.value = value;
  const control = field(label, input);
  control.classList.add("slider");
  control.querySelector("label").append(output);
  return control;
}

/** A select for an index, shown from 1. */
export const indexSelect = (label, count, chosen, change) => el("select", { "aria-label": label, "data-key": label, onchange: (event) => change(Number(event.target.value)) },
  ...Array.from({ length: count }, (_, each) => el("option", { value: each, selected: each === chosen }, `${label.toLowerCase()} ${each + 1}`)));
