// What several topics ask for: a run and a text, sentences to try, numbers by a slider.
import { get } from "../api.js";
import { el, field } from "../dom.js";
import { LACKING, fill, runsFor } from "./run_list.js";

/** Links to a page with the lectures' sentences, for runs that know all of their words. */
export function sentences(page, state = {}) {
  const list = el("ul", { class: "examples", "aria-label": "Sentences to try" });
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

/** A form for a run and a text; `ask({ run, text, target })` hears of each submission. */
export async function asking(state, topic, ask) {
  const run = el("select", { onchange: () => named() }), text = el("textarea", { spellcheck: "false", dir: "auto" }), target = el("input", { placeholder: "its own output" });
  const targetField = field("Follow this output", target), tries = sentences("explain", { topic });
  const asked = () => ({ run: run.value, text: text.value, target: targetField.hidden ? "" : target.value });
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); ask(asked()); } },
    field("Run", run), field("Text", text), tries.list, targetField, el("button", { class: "main", type: "submit" }, "Look"));
  const { runs, problem } = await runsFor(form, (each) => each.reads !== "images", LACKING);
  const wrong = problem || fill(run, runs, state.run);
  text.value = state.text ?? "";
  target.value = state.target ?? "";
  named();
  return { form, asked, wrong };

  function named() {
    targetField.hidden = !(runs.find((each) => each.name === run.value)?.transduces ?? true);
    tries.show(run.value);
  }
}

/** `change(number)` hears of every move. */
export function slider(label, value, [least, most, step], change) {
  const output = el("output", {}, String(value));
  const input = el("input", { type: "range", min: least, max: most, step, oninput: () => { output.textContent = input.value; change(Number(input.value)); } });
  input.value = value;
  const made = field(label, input);
  made.classList.add("slider");
  made.querySelector("label").append(output);
  return made;
}

/** A list to choose a number from, counted from one for people. */
export const numbered = (label, count, chosen, change) => el("select", { "aria-label": label, "data-key": label, onchange: (event) => change(Number(event.target.value)) },
  ...Array.from({ length: count }, (_, each) => el("option", { value: each, selected: each === chosen }, `${label.toLowerCase()} ${each + 1}`)));
