// Runs: curves of trainings while they go on, what differs between them, and what comparisons came to.
import { among } from "../address.js";
import { get, post } from "../api.js";
import { choice, el, field, say } from "../dom.js";
import { headColour } from "../draw/colours.js";
import { plot, short } from "../draw/plot.js";
import { comparisons } from "./runs_compared.js";
import { Curves } from "./runs_curves.js";
import { Samples } from "./runs_samples.js";
import { saver } from "./saving.js";

const AXES = [["step", "steps"], ["minutes", "minutes"], ["epoch", "epochs"]];
const EVERY = 3000; // milliseconds between questions while something trains
const USUAL = 4; // runs at first
const STATES = { running: "running", done: "done", interrupted: "interrupted", untrained: "untrained", damaged: "damaged", folder: "folder" };

export async function runs(view, state, keep) {
  const problem = el("p", { class: "problem", role: "alert" });
  const chosen = { over: state.over ?? "step", smooth: Number(state.smooth ?? 0), log: state.log === "1", show: state.show ? state.show.split("/") : [], runs: new Set(state.runs ? state.runs.split("/") : []) };
  const list = el("div", { class: "checks", role: "group", "aria-label": "Runs" });
  const slider = el("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: chosen.smooth, oninput: () => { chosen.smooth = Number(slider.value); draw(); } });
  const log = el("input", { type: "checkbox", checked: chosen.log, onchange: () => { chosen.log = log.checked; draw(); } });
  const form = el("section", { class: "panel", "aria-label": "Choice" }, el("h2", {}, "Runs"), list, field("Smoothing", slider),
    el("label", { class: "check" }, log, "logarithmic values"), problem);
  const figure = el("section", { class: "panel", "aria-label": "Curves" }), scores = el("section", { class: "panel", "aria-label": "Scores" });
  const written = el("section", { class: "panel", "aria-label": "Samples" }), samples = new Samples(written, (run) => remember({ sample: run }));
  const settings = el("section", { class: "panel", "aria-label": "Settings that differ" }), compared = el("section", { class: "panel", "aria-label": "Comparisons", hidden: true });
  view.replaceChildren(el("h1", {}, "Runs"),
    el("p", { class: "lead" }, "How trainings went and go: every point is a row of the run's metrics.jsonl. What trains now is drawn on as it writes."),
    el("div", { class: "columns" }, form, el("div", { class: "stack" }, figure, scores, written, settings, compared)));

  const curves = new Curves();
  let found = [];
  await refresh();
  if (!chosen.runs.size) for (const each of found.filter((one) => one.steps).slice(-USUAL)) chosen.runs.add(each.name);
  names();
  await follow();
  await differ();
  await comparisons(compared, state.table ?? "", state.score ?? "", (more) => remember(more));
  view.dataset.ready = "runs";
  let turn = 0;
  const timer = setInterval(async () => {
    if (!view.contains(form)) return clearInterval(timer);
    const trains = found.some((each) => each.state === "running");
    if (document.hidden || (!trains && ++turn % 5)) return; // now and then, for what begins
    const before = JSON.stringify(found);
    await refresh();
    if (JSON.stringify(found) !== before) names();
    if (trains) await follow();
  }, EVERY);

  function remember(more = {}) {
    Object.assign(state, more);
    if (!view.contains(form)) return;
    keep({ runs: [...chosen.runs].join("/"), show: chosen.show.join("/"), over: chosen.over, smooth: chosen.smooth || "", log: chosen.log ? "1" : "", sample: state.sample, table: state.table, score: state.score });
  }

  async function refresh() {
    try {
      found = await get("/api/runs/histories");
      problem.textContent = "";
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  function place(name) {
    return found.findIndex((each) => each.name === name);
  }

  function names() {
    list.replaceChildren(...found.filter((each) => each.state !== "folder").map((each) => {
      const box = el("input", { type: "checkbox", checked: chosen.runs.has(each.name), onchange: () => pick(each.name, box.checked) });
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = headColour(place(each.name));
      return el("label", { class: "check" }, box, swatch, el("span", { class: "grow" }, each.name), el("span", { class: `state ${STATES[each.state]}` }, each.state));
    }));
    if (!list.children.length) list.append(el("p", { class: "note" }, "No run is here yet; train one with `headwise demo` or `headwise train`, and it shows up here."));
  }

  async function pick(name, on) {
    if (on) chosen.runs.add(name);
    else chosen.runs.delete(name);
    delete view.dataset.ready;
    await follow();
    await differ();
    view.dataset.ready = "runs";
  }

  async function follow() {
    const known = new Set(found.filter((each) => each.state !== "folder").map((each) => each.name));
    chosen.runs = new Set(among("run", chosen.runs, known));
    try {
      await curves.follow([...chosen.runs]);
      if (state.sample) among("run", [state.sample], chosen.runs);
      await samples.show([...chosen.runs].sort((a, b) => place(a) - place(b)), state.sample);
    } catch (error) {
      problem.textContent = error.message;
      return;
    }
    const every = curves.names([...chosen.runs]);
    chosen.show = among("curve", chosen.show, every);
    if (!chosen.show.length) chosen.show = [every.find((name) => name === "loss"), every.find((name) => name.startsWith("valid "))].filter(Boolean);
    draw();
  }

  function draw() {
    remember();
    const names = [...chosen.runs].sort((a, b) => place(a) - place(b)), note = el("p", { class: "note" });
    const resting = chosen.smooth ? `faint: as written; strong: the mean of all rows before, each weighing ${chosen.smooth} of the next` : "point at a curve to see its numbers; the arrow keys move along it";
    const hear = (what) => (values) => note.replaceChildren(...(values ? values.flatMap((each) => [el("b", {}, each.name), ` ${what} at ${chosen.over} ${short(each.x)}: `, el("span", { class: "formula" }, String(each.y)), "  "]) : [resting]));
    const width = Math.max(300, Math.min(chosen.show.length > 1 ? 520 : 900, (figure.clientWidth - 48) / (chosen.show.length > 1 && figure.clientWidth > 760 ? 2 : 1)));
    const drawn = chosen.show.map((what) => {
      const series = names.map((name) => ({ name, place: place(name), dots: what.startsWith("valid "), ...curves.series(name, what, chosen.over, chosen.smooth) }));
      return el("figure", {}, el("figcaption", {}, what), plot(series, { x: { label: AXES.find(([axis]) => axis === chosen.over)[1] }, y: { label: what, log: chosen.log }, width, height: 280, tell: hear(what) }));
    });
    const every = curves.names(names);
    const toggles = el("div", { class: "row", role: "group", "aria-label": "What is drawn" }, ...every.map((what) => el("button", { type: "button", "aria-pressed": String(chosen.show.includes(what)), onclick: () => { chosen.show = every.filter((each) => (each === what) !== chosen.show.includes(each)); draw(); } }, what)));
    figure.replaceChildren(el("div", { class: "toolbar" }, choice("Over", AXES, chosen.over, (over) => { chosen.over = over; draw(); }), toggles,
      saver(() => [...figure.querySelectorAll("svg.plot")], () => names.map((name) => ({ run: name, rows: curves.rows(name) })), "curves")),
    el("div", { class: "figures-row" }, ...drawn), note);
    hear("")(null);
    say(`curves of ${names.length} runs`);
    tell(names);
  }

  function tell(names) {
    const every = curves.names(names).filter((name) => name.startsWith("valid "));
    const rows = names.map((name) => found[place(name)]).map((each) => el("tr", {}, el("th", { scope: "row" }, each.name),
      el("td", {}, each.state), el("td", {}, (each.steps ?? 0).toLocaleString("en")), el("td", {}, short(each.minutes)),
      el("td", {}, each.score ? `${each.score} ${short(each.best)}` : "–"), ...every.map((what) => el("td", {}, short(curves.last(each.name, what))))));
    const head = ["run", "state", "steps", "minutes", "best", ...every.map((what) => `last ${what}`)];
    scores.replaceChildren(el("h2", {}, "Scores"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head.map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, ...rows))));
    scores.hidden = !names.length;
  }

  async function differ() {
    const names = [...chosen.runs].sort((a, b) => place(a) - place(b));
    settings.hidden = names.length < 2;
    if (names.length < 2) return;
    const differing = await post("/api/runs/differences", { runs: names }).catch((error) => { problem.textContent = error.message; return { settings: {} }; });
    const rows = Object.entries(differing.settings).map(([key, values]) => el("tr", {}, el("th", { scope: "row" }, key), ...values.map((value) => el("td", {}, value ?? "–"))));
    settings.replaceChildren(el("h2", {}, "Settings that differ"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...["setting", ...names].map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, ...rows))));
  }
}
