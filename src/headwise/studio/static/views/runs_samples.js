// What a run wrote at each validation: the same examples again and again, so that one sees it learn.
import { post } from "../api.js";
import { choice, el } from "../dom.js";

const SHOWN = 6; // changes of one example before the rest is folded

export class Samples {
  constructor(panel, remember) {
    Object.assign(this, { panel, remember, run: "", known: "" });
    panel.hidden = true;
  }

  /** `runs` are those that may have samples; the one that was looked at stays, unless it left. */
  async show(runs, wanted = "") {
    this.run = runs.includes(wanted) ? wanted : runs.includes(this.run) ? this.run : runs[0] ?? "";
    const rows = this.run ? await post("/api/runs/samples", { run: this.run }) : [];
    const known = JSON.stringify([this.run, runs, rows.length, rows.at(-1)]);
    if (known === this.known) return;
    this.known = known;
    this.panel.hidden = !runs.length;
    const picker = choice("Run", runs.map((each) => [each, each]), this.run, (run) => { this.remember(run); return this.show(runs, run); });
    const examples = rows.at(-1)?.samples ?? [];
    this.panel.replaceChildren(el("h2", {}, "Samples"), runs.length > 1 ? el("div", { class: "toolbar" }, picker) : "",
      examples.length ? el("p", { class: "note" }, "What the model made of the same examples at its validations, the newest first; only what changed is listed.")
        : el("p", { class: "note" }, "This run kept no samples (train.samples says how many are kept at each validation)."),
      ...examples.map((example, place) => told(example, changes(rows, place))));
  }
}

/** Outputs of one example, the newest first; equal ones that follow each other are one, named by the first step. */
export function changes(rows, place) {
  const found = [];
  for (const { step, samples } of rows) {
    const output = samples[place]?.output;
    if (output !== undefined && output !== found[0]?.output) found.unshift({ step, output });
  }
  return found;
}

function told({ source, reference }, outputs) {
  const line = (name, text, kind) => el("tr", { class: kind }, el("th", { scope: "row" }, name), el("td", { dir: "auto" }, text || el("i", {}, "nothing")));
  const table = (rows) => el("table", { class: "samples" }, el("tbody", {}, ...rows));
  const listed = outputs.map(({ step, output }) => line(`step ${step.toLocaleString("en")}`, output, output === reference ? "right" : ""));
  return el("section", { class: "sample" }, table([line("given", source, "given"), line("true", reference, "given"), ...listed.slice(0, SHOWN)]),
    listed.length > SHOWN ? el("details", {}, el("summary", {}, `${listed.length - SHOWN} earlier`), table(listed.slice(SHOWN))) : "");
}
