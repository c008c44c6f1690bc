// Play: an episode of an agent frame by frame, with what it attends to, its actions and returns.
import { getImage, postPacked } from "../api.js";
import { announce, availableWidth, buttonGroup, cssColour, el, field, keepFocus, onThemeChange, svg } from "../dom.js";
import { drawCells, headColour } from "../draw/colours.js";
import { drawLegend } from "../draw/curve.js";
import { drawPlot, formatShort } from "../draw/plot.js";
import { runLong } from "../progress.js";
import { exportButtons } from "./export.js";
import { fillRuns, findRuns } from "./run_list.js";

const LEAD = "An episode of an agent, frame by frame: where it looks, what it does, and what it is given for it.";
const NO_AGENTS = "No run here acts in an environment yet; train one with `headwise train experiments/catch-attention-agent.toml`, and it appears here.";
const AGENTS = ["episodes", "environment"]; // what their tasks read: logs, or the world itself
const FRAMES_PER_SECOND = 12, SIDE = 440, BAR = 16;

export async function play(view, state, keep) {
  const problem = el("p", { class: "problem", role: "alert" });
  const chosen = { step: Number(state.step ?? 1) - 1, patches: state.patches !== "0", heat: state.heat === "1" };
  const run = el("select"), seed = el("input", { type: "number", min: 0, max: 1e9, step: 1, value: state.seed ?? "0" });
  const target = el("input", { type: "number", step: "any", placeholder: "the best logged", value: state.target ?? "" });
  const colours = el("select", {}, ...[["", "as in training"], ["standard", "standard"], ["shifted", "shifted"], ["random", "random"]].map(([value, name]) => el("option", { value }, name)));
  colours.value = state.colours ?? "";
  const distractors = el("input", { type: "number", min: 0, max: 16, step: 1, placeholder: "as in training", value: state.distractors ?? "" });
  const button = el("button", { class: "main", type: "submit" }, "Play");
  const targetField = field("Return to ask for", target);
  const form = el("form", { class: "panel", onsubmit: (event) => { event.preventDefault(); send(); } },
    field("Run", run), field("Seed of the episode", seed), targetField, field("Colours of the world", colours), field("Distractors", distractors), button, problem);
  const panel = (label) => el("section", { class: "panel", "aria-label": label, hidden: true });
  const scene = el("section", { class: "panel", "aria-label": "Episode" }, el("p", { class: "note" }, "Choose a run, then press Play."));
  const returns = panel("Returns"), values = panel("Actions"), past = panel("Attention to past steps");
  let result = null, request = {}, turns = 0, timer = null, show = () => {};
  view.replaceChildren(el("h1", {}, "Play"), el("p", { class: "lead" }, LEAD), el("div", { class: "columns" }, form, el("div", { class: "stack" }, scene, past, el("div", { class: "two" }, returns, values))));
  onThemeChange(scene, () => result && draw());
  const { runs, problem: none } = await findRuns(form, (each) => AGENTS.includes(each.input), NO_AGENTS).catch((error) => ({ runs: [], problem: error.message }));
  problem.textContent = none || fillRuns(run, runs, state.run);
  const fit = () => { targetField.hidden = runs.find((each) => each.name === run.value)?.input !== "episodes"; };
  run.addEventListener("change", fit);
  fit();
  if (state.run && !problem.textContent) await send();
  else if (form.isConnected) view.dataset.ready = "form";

  async function send() {
    const turn = ++turns, current = () => turn === turns && form.isConnected;
    const next = { run: run.value, seed: seed.value, target: targetField.hidden ? "" : target.value, colours: colours.value, distractors: distractors.value };
    const number = (text) => (text === "" ? null : Number(text));
    stop();
    problem.textContent = "";
    delete view.dataset.ready;
    button.disabled = true;
    try {
      const answer = await runLong("Playing", (task) => postPacked("/api/play", { run: next.run, seed: Number(next.seed) || 0, target: number(next.target), colours: next.colours, distractors: number(next.distractors) }, task));
      if (!current()) return;
      [result, request] = [read(answer), next];
      chosen.step = Math.min(Math.max(chosen.step, 0), result.steps - 1);
      announce(`${next.run} played ${result.steps} steps, return ${formatShort(result.returns.at(-1))}`);
      draw();
      view.dataset.ready = "play";
    } catch (error) {
      if (!current()) return;
      problem.textContent = error.message;
      view.dataset.ready = "problem";
    } finally {
      if (turn === turns) button.disabled = false;
    }
  }

  function remember() {
    keep({ ...request, step: chosen.step + 1, patches: chosen.patches ? "" : "0", heat: chosen.heat ? "1" : "" });
  }

  function stop() {
    clearInterval(timer);
    timer = null;
  }

  function draw() {
    returns.hidden = false;
    values.hidden = !result.values.count; // before their widths are measured
    const parts = [drawScene(), drawReturns(), drawValues(), drawPast()];
    show = (step) => {
      chosen.step = step;
      for (const part of parts) part(step);
      remember();
    };
    show(chosen.step);
  }

  function drawScene() {
    const { steps } = result, side = Math.min(SIDE, availableWidth(scene, SIDE));
    const picture = svg("image", { width: side, height: side, preserveAspectRatio: "xMidYMid meet" });
    const over = svg("g"), figure = svg("svg", { width: side, height: side, viewBox: `0 0 ${side} ${side}`, class: "scene", role: "img", "aria-label": `Frames of ${result.environment}` }, picture, over);
    const slider = el("input", { type: "range", min: 1, max: steps, step: 1, "aria-label": "Step", "data-key": "step", oninput: () => { stop(); mark(); show(Number(slider.value) - 1); } });
    const runs = el("button", { type: "button", "data-key": "runs", onclick: toggle }, "▶ Play");
    const mark = () => { runs.textContent = timer ? "❚❚ Pause" : "▶ Play"; };
    const note = el("p", { class: "note" });
    const { name } = result, frames = new Map();
    function load(step) {
      if (!frames.has(step)) frames.set(step, getImage(`/api/play/${name}/${step}.png`));
      return frames.get(step);
    }
    function toggle() {
      if (timer) stop();
      else {
        if (chosen.step >= steps - 1) show(0);
        timer = setInterval(() => {
          if (!figure.isConnected) return stop();
          if (chosen.step >= steps - 1) { stop(); mark(); } else show(chosen.step + 1);
        }, 1000 / FRAMES_PER_SECOND);
      }
      mark();
    }
    const flip = (key) => (value) => { chosen[key] = value; keepFocus(scene, () => { stop(); draw(); }); };
    const looks = result.patches.count > 0;
    scene.replaceChildren(
      el("div", { class: "toolbar" }, el("h2", {}, result.environment), runs,
        looks ? buttonGroup("Patches", [[true, "patches"], [false, "no patches"]], chosen.patches, flip("patches")) : null,
        looks ? buttonGroup("Heat", [[true, "attention"], [false, "no attention"]], chosen.heat, flip("heat")) : null,
        exportButtons(() => figure, () => ({ ...request, step: chosen.step + 1, patches: result.patches.at(chosen.step) }), "episode")),
      figure, el("div", { class: "field slider" }, slider), note);
    return (step) => {
      load(step).then((url) => chosen.step === step && picture.setAttribute("href", url)).catch((error) => { stop(); problem.textContent = error.message; });
      if (step + 1 < steps) load(step + 1).catch(() => null);
      slider.value = step + 1;
      slider.setAttribute("aria-valuetext", `step ${step + 1} of ${steps}`);
      over.replaceChildren(...(chosen.heat && looks ? [drawHeat(step, side)] : []), ...(chosen.patches ? drawPatches(step, side) : []));
      const did = result.discrete ? `action ${result.actions[step]}` : `action ${[result.actions[step]].flat().map((each) => formatShort(each)).join(", ")}`;
      note.replaceChildren(el("b", {}, `step ${step + 1} of ${steps}`), ` ${did}, reward ${formatShort(result.rewards[step])}, return so far ${formatShort(result.returns[step])}`,
        ...(result.to_go[step] === null ? [] : [`, still asked for ${formatShort(result.to_go[step])}`]), ...(looks ? [". White: the patches that the agent reads, the most important brightest."] : []));
    };
  }

  function drawPatches(step, side) {
    const patches = result.patches.at(step);
    return patches.map(([row, column, height, width], rank) => svg("rect", {
      class: "patch", x: side * column, y: side * row, width: side * width, height: side * height, fill: "none", stroke: "#fff", "stroke-width": 2,
      "stroke-opacity": 1 - (0.7 * rank) / Math.max(1, patches.length - 1),
    })).reverse();
  }

  /** Attention above that of the average patch, as an image over the frame. */
  function drawHeat(step, side) {
    const { rows, columns, weights } = result.importance.at(step), mean = weights.reduce((sum, each) => sum + each, 0) / weights.length;
    const most = Math.max(...weights) - mean || 1, [, , height, width] = result.patches.at(step)[0];
    const cells = drawCells(Float32Array.from(weights, (each) => Math.max(0, (each - mean) / most)), columns, (value) => [255, 110, 0].map((each) => Math.round(each * value)));
    const [high, wide] = [(1 - height) / (rows - 1 || 1), (1 - width) / (columns - 1 || 1)].map((each) => side * each); // pixels between centres
    return svg("image", { href: cells, class: "heat", x: side * width / 2 - wide / 2, y: side * height / 2 - high / 2, width: wide * columns, height: high * rows, preserveAspectRatio: "none" });
  }

  /** A plot over the steps with a line at the present one; a step under the pointer is shown. */
  function follow(node, title, series, label, hint, name) {
    const plot = drawPlot(series, { x: { label: "step" }, y: { label }, width: availableWidth(node, 640), height: 230, onHover: (found) => found && show(found[0].x - 1) });
    const note = el("p", { class: "note" });
    node.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, title), drawLegend(series.map((each) => each.name)), exportButtons(() => plot, () => ({ ...request, series }), name)), plot, note);
    return (step) => note.replaceChildren(...(step === null ? [hint] : series.flatMap((each, index) => {
      const point = each.points.find(([at]) => at === step + 1), swatch = el("span", { class: "swatch" });
      swatch.style.background = headColour(index);
      return point ? [swatch, `${each.name} ${formatShort(point[1])}  `] : [];
    })));
  }

  function drawReturns() {
    const over = (numbers) => numbers.flatMap((each, step) => (each === null ? [] : [[step + 1, each]]));
    const series = [{ name: "return so far", points: over(result.returns) }];
    if (result.to_go.some((each) => each !== null)) series.push({ name: "still asked for", points: over(result.to_go) });
    return follow(returns, "Returns", series, "return", "Point at the curve, or use the arrow keys.", "returns");
  }

  function drawValues() {
    if (values.hidden) return () => {};
    const names = Array.from({ length: result.values.count }, (_, number) => (result.discrete ? `p(action ${number})` : `action ${number}`));
    const series = names.map((name, number) => ({ name, points: Array.from({ length: result.steps }, (_, step) => [step + 1, result.values.at(step)[number]]) }));
    return follow(values, result.discrete ? "Probabilities of actions" : "Actions", series, result.discrete ? "probability" : "value, −1 to 1", "", "actions");
  }

  function drawPast() {
    past.hidden = !result.past.layers;
    if (past.hidden) return () => {};
    const { layers, length } = result.past, width = availableWidth(past, 900), left = 70, step = Math.min(40, (width - left) / length);
    const figure = svg("svg", { width, height: layers * (3 * BAR) + 24, viewBox: `0 0 ${width} ${layers * 3 * BAR + 24}`, role: "img", "aria-label": "Attention of the present step to past ones, by layer" });
    past.replaceChildren(el("div", { class: "toolbar" }, el("h2", {}, "Attention to past steps"), exportButtons(() => figure, () => ({ ...request, step: chosen.step + 1, past: result.past.at(chosen.step) }), "past")), figure,
      el("p", { class: "note" }, "How much the observation of this step attends to each step that the model reads (return, observation and action together; mean of heads)."));
    return (now) => {
      const weights = result.past.at(now), known = Math.min(length, now + 1);
      figure.replaceChildren(...weights.flatMap((row, layer) => {
        const bottom = (layer + 1) * 3 * BAR, most = Math.max(...row, 1e-9);
        return [svg("text", { class: "tick", x: 0, y: bottom - BAR }, `layer ${layer + 1}`),
          ...row.slice(length - known).map((weight, index) => {
            const high = (3 * BAR - 8) * (weight / most), x = left + (length - known + index) * step;
            const bar = svg("rect", { x, y: bottom - high, width: Math.max(1, step - 2), height: high, fill: cssColour("--accent") });
            bar.append(svg("title", {}, `step ${now + 2 - known + index}: ${weight.toFixed(3)}`));
            return bar;
          })];
      }), svg("text", { class: "tick", x: left + length * step - step / 2, y: layers * 3 * BAR + 18, "text-anchor": "end" }, `step ${now + 1}`));
    };
  }
}

/** The arrays of an answer by step. */
function read(answer) {
  const take = (entry) => ({ data: answer.array(entry), shape: entry.shape });
  const [values, patches, importance, past] = ["values", "patches", "importance", "past"].map((name) => take(answer[name]));
  const slice = ({ data, shape }, step) => { const size = shape.slice(1).reduce((product, each) => product * each, 1); return data.subarray(step * size, (step + 1) * size); };
  const rows = (flat, width) => Array.from({ length: width ? flat.length / width : 0 }, (_, row) => Array.from(flat.subarray(row * width, (row + 1) * width)));
  let sum = 0;
  return {
    ...answer, returns: answer.rewards.map((each) => (sum += each)),
    values: { count: values.shape[1], at: (step) => Array.from(slice(values, step)) },
    patches: { count: patches.shape[1], at: (step) => rows(slice(patches, step), 4) },
    importance: { at: (step) => ({ rows: importance.shape[1], columns: importance.shape[2], weights: Array.from(slice(importance, step)) }) },
    past: { layers: past.shape[1] * (past.shape[2] ? 1 : 0), length: past.shape[2], at: (step) => rows(slice(past, step), past.shape[2]) },
  };
}
