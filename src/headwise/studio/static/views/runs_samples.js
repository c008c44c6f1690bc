// Samples: the outputs of a run for the same examples at each validation.
import { post } from "../api.js";
import { buttonGroup, el } from "../dom.js";

const SHOWN = 6; // outputs of one example that are not folded

export class Samples {
  constructor(panel, remember) {
    Object.assign(this, { panel, remember, run: "", known: "" });
    panel.hidden = true;
  }

  /** `runs`: the chosen runs; the current one stays selected if it is still among them. */
  async show(runs, wanted = "") {
    this.run = runs.includes(wanted) ? wanted : runs.includes(this.run) ? this.run : runs[0] ?? "";
    const rows = this.run ? await post("/api/runs/samples", { run: this.run }) : [];
    const known = JSON.stringify([this.run, runs, rows.length, rows.at(-1)]);
    if (known === this.known) return;
    this.known = known;
    this.panel.hidden = !runs.length;
    const picker = buttonGroup("Run", runs.map((each) => [each, each]), this.run, (run) => { this.remember(run); return this.show(runs, run); });
    const examples = rows.at(-1)?.samples ?? [];
    this.panel.replaceChildren(el("h2", {}, "Samples"), runs.length > 1 ? el("div", { class: "toolbar" }, picker) : "",
      examples.length ? el("p", { class: "note" }, "The model's outputs for the same examples at each validation, newest first; repeated outputs are listed once.")
        : el("p", { class: "note" }, "This run has no samples (train.samples sets how many are kept at each validation)."),
      ...examples.map((example, index) => drawExample(example, listChanges(rows, index))));
  }
}

/** The outputs of one example, newest first; consecutive equal outputs are merged under their first step. */
export function listChanges(rows, index) {
  const outputs = [];
  for (const { step, samples } of rows) {
    const output = samples[index]?.output;
    if (output !== undefined && output !== outputs[0]?.output) outputs.unshift({ step, output });
  }
  return outputs;
}

function drawExample({ source, reference }, outputs) {
  const line = (name, text, kind) => el("tr", { class: kind }, el("th", { scope: "row" }, name), el("td", { dir: "auto" }, text || el("i", {}, "empty")));
  const table = (rows) => el("table", { class: "samples" }, el("tbody", {}, ...rows));
  const lines = outputs.map(({ step, output }) => line(`step ${step.toLocaleString("en")}`, output, output === reference ? "right" : ""));
  return el("section", { class: "sample" }, table([line("source", source, "given"), line("reference", reference, "given"), ...lines.slice(0, SHOWN)]),
    lines.length > SHOWN ? el("details", {}, el("summary", {}, `${lines.length - SHOWN} earlier`), table(lines.slice(SHOWN))) : "");
}
