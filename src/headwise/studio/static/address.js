// The URL parameters of each page. Invalid ones are ignored, and a message above the page says so.

const any = { accepts: () => true };
const flag = { accepts: (text) => text === "1" || text === "0", rule: "must be 0 or 1" };
const whole = { accepts: (text) => /^\d{1,9}$/.test(text), rule: "must be a whole number, 0 or larger" };
const between = (min, max) => ({ accepts: (text) => text.trim() !== "" && Number(text) >= min && Number(text) <= max, rule: `must be a number from ${min} to ${max}` });
const count = (min, max) => ({ accepts: (text) => whole.accepts(text) && between(min, max).accepts(text), rule: `must be a whole number from ${min} to ${max}` });
const one = (...names) => ({ accepts: (text) => names.includes(text), rule: `must be ${names.slice(0, -1).join(", ")} or ${names.at(-1)}` });
const list = (each, rule, separator = ",") => ({ accepts: (text) => text.split(separator).every((part) => each.accepts(part)), rule });
const numbers = list(whole, "must be whole numbers separated by commas");
const rows = list(list({ accepts: (text) => text.trim() !== "" && Number.isFinite(Number(text)) }), "must be numbers separated by commas, rows by semicolons", ";");
const heads = list({ accepts: (text) => /^\w+(\.\d{1,9}){1,2}$/.test(text) }, "must be layers such as cross.0 or heads such as cross.0.2, separated by commas");

const TEXT_PARAMETERS = { run: any, text: any, target: any };
const TOPICS = {
  attention: { scaled: flag, causal: flag, inputs: rows, query: rows, key: rows, value: rows },
  masks: { padding: count(0, 6), side: one("left", "right"), left: count(0, 7), right: count(0, 7), segments: count(1, 8), on: list(one("causal", "padding", "window", "segments"), "must be some of causal, padding, window and segments, separated by commas") },
  positions: { kind: one("sinusoid", "rotary", "alibi", "buckets", "run"), length: count(4, 128), width: count(4, 128), heads: count(1, 16), head: whole, which: whole, run: any },
  heads: { ...TEXT_PARAMETERS, kind: any, layer: whole },
  order: { text: any, positions: flag, order: numbers },
  neuron: { ...TEXT_PARAMETERS, kind: any, layer: whole, head: whole, query: whole, key: whole },
};
const PARAMETERS = {
  look: () => ({ ...TEXT_PARAMETERS, view: one("heads", "matrix", "model"), kind: any, layer: whole, heads: numbers, exact: flag, pin: whole }),
  step: () => ({ run: any, text: any, tokens: numbers, temperature: between(0.1, 2), k: count(0, 50), p: between(0.05, 1), kind: any, layer: whole, all: flag, beams: one("2", "3", "4", "6", "8") }),
  intervene: () => ({ ...TEXT_PARAMETERS, hidden: numbers, off: heads }),
  fold: () => ({ run: any, chain: count(1, 100_000), sequence: any, colour: one("confidence", "position"), true: flag, map: whole, kind: one("rows", "columns", "starting", "ending", "points"), layer: whole, head: whole, line: whole }),
  play: () => ({ run: any, seed: count(0, 1_000_000_000), target: between(-1e9, 1e9), colours: one("standard", "shifted", "random"), distractors: count(0, 16), step: count(1, 1_000_000), patches: flag, heat: flag }),
  explain: (state) => ({ topic: one(...Object.keys(TOPICS)), ...TOPICS[state.topic in TOPICS ? state.topic : "attention"] }),
  catalogue: () => ({ model: any, costs: any, find: any, family: any, task: any, sort: one("order", "name", "year", "size"), what: one("flops_per_token", "activation_bytes", "length_flops") }),
  runs: () => ({ runs: any, show: any, over: one("step", "minutes", "epoch"), smooth: between(0, 0.98), log: flag, sample: any, table: any, score: any }),
};

const problemElement = () => document.getElementById("address");
let reporting = true; // until the user changes something on the page: from then on the URL follows the page

/** Add a sentence about the URL to the message above the page. */
export function reportProblem(sentence) {
  if (reporting) problemElement().textContent = `${problemElement().textContent} ${sentence}`.trim();
}

/** Start with a new URL. */
export function resetProblems() {
  reporting = true;
  problemElement().textContent = "";
}

/** The user changed something on the page. */
export function dismissProblems() {
  reporting = false;
  problemElement().textContent = "";
}

/** The valid parameters of a page; the others are reported. */
export function validParameters(page, state) {
  const known = PARAMETERS[page](state), valid = {};
  for (const [name, text] of Object.entries(state)) {
    if (!known[name] || text === "") continue;
    if (known[name].accepts(text)) valid[name] = text;
    else reportProblem(`The parameter ${name}=${text.slice(0, 60)} is ignored: ${name} ${known[name].rule}.`);
  }
  return valid;
}

/** An index below `count`; a larger one is reported, and the last one is used. */
export function clampIndex(name, chosen, count) {
  if (chosen < count) return chosen;
  reportProblem(`There is no ${name} ${chosen + 1} here, so ${name} ${count} is shown.`);
  return count - 1;
}

/** The chosen values that are known; the others are reported and ignored. */
export function keepKnown(what, chosen, known) {
  const all = new Set(known);
  for (const each of chosen) if (!all.has(each)) reportProblem(`There is no ${what} “${String(each).slice(0, 60)}” here; it is ignored.`);
  return [...chosen].filter((each) => all.has(each));
}
