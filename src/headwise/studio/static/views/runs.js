// Runs: live training curves, samples, scores, differences of settings, and comparisons.
import { keepKnown } from "../address.js";
import { get, post } from "../api.js";
import { buttonGroup, el, field, announce } from "../dom.js";
import { headColour } from "../draw/colours.js";
import { drawPlot, formatShort } from "../draw/plot.js";
import { showComparisons } from "./runs_comparisons.js";
import { Curves } from "./runs_curves.js";
import { Samples } from "./runs_samples.js";
import { exportButtons } from "./export.js";

const AXES = [["step", "steps"], ["minutes", "minutes"], ["epoch", "epochs"]];
const POLL_MS = 3000; // milliseconds between requests while a run is training
const INITIAL_RUNS = 4; // runs shown at first
const STATES = { running: "running", done: "done", interrupted: "interrupted", untrained: "untrained", damaged: "damaged", folder: "folder" };

export async function runs(view, state, keep) {
  const problem = el("p", { class: "problem", role: "alert" });
  const chosen = { over: state.over ?? "step", smooth: Number(state.smooth ?? 0), log: state.log === "1", show: state.show ? state.show.split("/") : [], runs: new Set(state.runs ? state.runs.split("/") : []) };
  const list = el("div", { class: "checks", role: "group", "aria-label": "Runs" });
  const slider = el("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: chosen.smooth, oninput: () => { chosen.smooth = Number(slider.value); draw(); } });
  const log = el("input", { type: "checkbox", checked: chosen.log, onchange: () => { chosen.log = log.checked; draw(); } });
  const form = el("section", { class: "panel", "aria-label": "Choice" }, el("h2", {}, "Runs"), list, field("Smoothing", slider),
    el("label", { class: "check" }, log, "logarithmic axis"), problem);
  const figure = el("section", { class: "panel", "aria-label": "Curves" }), scores = el("section", { class: "panel", "aria-label": "Scores" });
  const samplesPanel = el("section", { class: "panel", "aria-label": "Samples" }), samples = new Samples(samplesPanel, (run) => remember({ sample: run }));
  const settings = el("section", { class: "panel", "aria-label": "Settings that differ" }), compared = el("section", { class: "panel", "aria-label": "Comparisons", hidden: true });
  view.replaceChildren(el("h1", {}, "Runs"),
    el("p", { class: "lead" }, "Training curves: every point is a row of the run's metrics.jsonl. Runs that are training are updated live."),
    el("div", { class: "columns" }, form, el("div", { class: "stack" }, figure, scores, samplesPanel, settings, compared)));

  const curves = new Curves();
  let histories = [];
  await refresh();
  if (!chosen.runs.size) for (const each of histories.filter((one) => one.steps).slice(-INITIAL_RUNS)) chosen.runs.add(each.name);
  listRuns();
  await follow();
  await showDifferences();
  await showComparisons(compared, state.table ?? "", state.score ?? "", (more) => remember(more));
  view.dataset.ready = "runs";
  let turn = 0;
  const timer = setInterval(async () => {
    if (!view.contains(form)) return clearInterval(timer);
    const isTraining = histories.some((each) => each.state === "running");
    if (document.hidden || (!isTraining && ++turn % 5)) return; // now and then, to find new runs
    const before = JSON.stringify(histories);
    await refresh();
    if (JSON.stringify(histories) !== before) listRuns();
    if (isTraining) await follow();
  }, POLL_MS);

  function remember(more = {}) {
    Object.assign(state, more);
    if (!view.contains(form)) return;
    keep({ runs: [...chosen.runs].join("/"), show: chosen.show.join("/"), over: chosen.over, smooth: chosen.smooth || "", log: chosen.log ? "1" : "", sample: state.sample, table: state.table, score: state.score });
  }

  async function refresh() {
    try {
      histories = await get("/api/runs/histories");
      problem.textContent = "";
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  function runIndex(name) {
    return histories.findIndex((each) => each.name === name);
  }

  function listRuns() {
    list.replaceChildren(...histories.filter((each) => each.state !== "folder").map((each) => {
      const box = el("input", { type: "checkbox", checked: chosen.runs.has(each.name), onchange: () => pick(each.name, box.checked) });
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = headColour(runIndex(each.name));
      return el("label", { class: "check" }, box, swatch, el("span", { class: "grow" }, each.name), el("span", { class: `state ${STATES[each.state]}` }, each.state));
    }));
    if (!list.children.length) list.append(el("p", { class: "note" }, "There is no run here yet; train one with `headwise demo` or `headwise train`, and it appears here."));
  }

  async function pick(name, on) {
    if (on) chosen.runs.add(name);
    else chosen.runs.delete(name);
    delete view.dataset.ready;
    await follow();
    await showDifferences();
    view.dataset.ready = "runs";
  }

  async function follow() {
    const known = new Set(histories.filter((each) => each.state !== "folder").map((each) => each.name));
    chosen.runs = new Set(keepKnown("run", chosen.runs, known));
    try {
      await curves.follow([...chosen.runs]);
      if (state.sample) keepKnown("run", [state.sample], chosen.runs);
      await samples.show([...chosen.runs].sort((a, b) => runIndex(a) - runIndex(b)), state.sample);
    } catch (error) {
      problem.textContent = error.message;
      return;
    }
    const every = curves.names([...chosen.runs]);
    chosen.show = keepKnown("curve", chosen.show, every);
    if (!chosen.show.length) chosen.show = [every.find((name) => name === "loss"), every.find((name) => name.startsWith("valid "))].filter(Boolean);
    draw();
  }

  function draw() {
    remember();
    const listRuns = [...chosen.runs].sort((a, b) => runIndex(a) - runIndex(b)), note = el("p", { class: "note" });
    const hint = chosen.smooth ? `faint: raw values; solid: exponential moving average with decay ${chosen.smooth}` : "point at a curve to see its values; the arrow keys move along it";
    const describe = (what) => (values) => note.replaceChildren(...(values ? values.flatMap((each) => [el("b", {}, each.name), ` ${what} at ${chosen.over} ${formatShort(each.x)}: `, el("span", { class: "formula" }, String(each.y)), "  "]) : [hint]));
    const width = Math.max(300, Math.min(chosen.show.length > 1 ? 520 : 900, (figure.clientWidth - 48) / (chosen.show.length > 1 && figure.clientWidth > 760 ? 2 : 1)));
    const drawn = chosen.show.map((what) => {
      const series = listRuns.map((name) => ({ name, index: runIndex(name), dots: what.startsWith("valid "), ...curves.series(name, what, chosen.over, chosen.smooth) }));
      return el("figure", {}, el("figcaption", {}, what), drawPlot(series, { x: { label: AXES.find(([axis]) => axis === chosen.over)[1] }, y: { label: what, log: chosen.log }, width, height: 280, onHover: describe(what) }));
    });
    const every = curves.names(listRuns);
    const toggles = el("div", { class: "row", role: "group", "aria-label": "Metrics" }, ...every.map((what) => el("button", { type: "button", "aria-pressed": String(chosen.show.includes(what)), onclick: () => { chosen.show = every.filter((each) => (each === what) !== chosen.show.includes(each)); draw(); } }, what)));
    figure.replaceChildren(el("div", { class: "toolbar" }, buttonGroup("Over", AXES, chosen.over, (over) => { chosen.over = over; draw(); }), toggles,
      exportButtons(() => [...figure.querySelectorAll("svg.plot")], () => listRuns.map((name) => ({ run: name, rows: curves.rows(name) })), "curves")),
    el("div", { class: "figures-row" }, ...drawn), note);
    describe("")(null);
    announce(`curves of ${listRuns.length} runs`);
    showScores(listRuns);
  }

  function showScores(listRuns) {
    const every = curves.names(listRuns).filter((name) => name.startsWith("valid "));
    const rows = listRuns.map((name) => histories[runIndex(name)]).map((each) => el("tr", {}, el("th", { scope: "row" }, each.name),
      el("td", {}, each.state), el("td", {}, (each.steps ?? 0).toLocaleString("en")), el("td", {}, formatShort(each.minutes)),
      el("td", {}, each.score ? `${each.score} ${formatShort(each.best)}` : "–"), ...every.map((what) => el("td", {}, formatShort(curves.last(each.name, what))))));
    const head = ["run", "state", "steps", "minutes", "best", ...every.map((what) => `last ${what}`)];
    scores.replaceChildren(el("h2", {}, "Scores"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head.map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, ...rows))));
    scores.hidden = !listRuns.length;
  }

  async function showDifferences() {
    const listRuns = [...chosen.runs].sort((a, b) => runIndex(a) - runIndex(b));
    settings.hidden = listRuns.length < 2;
    if (listRuns.length < 2) return;
    const differing = await post("/api/runs/differences", { runs: listRuns }).catch((error) => { problem.textContent = error.message; return { settings: {} }; });
    const rows = Object.entries(differing.settings).map(([key, values]) => el("tr", {}, el("th", { scope: "row" }, key), ...values.map((value) => el("td", {}, value ?? "–"))));
    settings.replaceChildren(el("h2", {}, "Settings that differ"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...["setting", ...listRuns].map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, ...rows))));
  }
}
