// What an address may say: the parameters of each page. What it may not is left out, and told above the page.

const any = { fits: () => true };
const flag = { fits: (text) => text === "1" || text === "0", says: "is 0 or 1" };
const whole = { fits: (text) => /^\d{1,9}$/.test(text), says: "is a whole number from 0 on" };
const between = (least, most) => ({ fits: (text) => text.trim() !== "" && Number(text) >= least && Number(text) <= most, says: `is a number from ${least} to ${most}` });
const count = (least, most) => ({ fits: (text) => whole.fits(text) && between(least, most).fits(text), says: `is a whole number from ${least} to ${most}` });
const one = (...names) => ({ fits: (text) => names.includes(text), says: `is ${names.slice(0, -1).join(", ")} or ${names.at(-1)}` });
const list = (each, says, apart = ",") => ({ fits: (text) => text.split(apart).every((part) => each.fits(part)), says });
const numbers = list(whole, "has whole numbers from 0 on, with commas between them");
const rows = list(list({ fits: (text) => text.trim() !== "" && Number.isFinite(Number(text)) }), "has numbers, with commas between them and semicolons between rows", ";");
const heads = list({ fits: (text) => /^\w+(\.\d{1,9}){1,2}$/.test(text) }, "has layers such as cross.0 or heads such as cross.0.2, with commas between them");

const asked = { run: any, text: any, target: any };
const TOPICS = {
  attention: { scaled: flag, causal: flag, inputs: rows, query: rows, key: rows, value: rows },
  masks: { padding: count(0, 6), side: one("left", "right"), left: count(0, 7), right: count(0, 7), segments: count(1, 8), on: list(one("causal", "padding", "window", "segments"), "has some of causal, padding, window and segments, with commas between them") },
  positions: { kind: one("sinusoid", "rotary", "alibi", "buckets", "run"), length: count(4, 128), width: count(4, 128), heads: count(1, 16), head: whole, which: whole, run: any },
  heads: { ...asked, kind: any, layer: whole },
  order: { text: any, positions: flag, order: numbers },
  neuron: { ...asked, kind: any, layer: whole, head: whole, query: whole, key: whole },
};
const PARAMETERS = {
  look: () => ({ ...asked, view: one("heads", "matrix", "model"), kind: any, layer: whole, heads: numbers, exact: flag, pin: whole }),
  step: () => ({ run: any, text: any, tokens: numbers, temperature: between(0.1, 2), k: count(0, 50), p: between(0.05, 1), kind: any, layer: whole, all: flag, beams: one("2", "3", "4", "6", "8") }),
  intervene: () => ({ ...asked, hidden: numbers, off: heads }),
  explain: (state) => ({ topic: one(...Object.keys(TOPICS)), ...TOPICS[state.topic in TOPICS ? state.topic : "attention"] }),
  catalogue: () => ({ model: any, costs: any, find: any, family: any, task: any, sort: one("order", "name", "year", "size"), what: one("flops_per_token", "activation_bytes", "length_flops") }),
  runs: () => ({ runs: any, show: any, over: one("step", "minutes", "epoch"), smooth: between(0, 0.98), log: flag, sample: any, table: any, score: any }),
};

const place = () => document.getElementById("address");
let listening = true; // until something is chosen on the page: from then on the address follows the page

/** Say what is wrong with the address, beside what was said of it before. */
export function wrong(sentence) {
  if (listening) place().textContent = `${place().textContent} ${sentence}`.trim();
}

/** Begin with a new address. */
export function listen() {
  listening = true;
  place().textContent = "";
}

/** Something was chosen on the page. */
export function forget() {
  listening = false;
  place().textContent = "";
}

/** The parameters of a page that fit; what is wrong with the others is told. */
export function fitting(page, state) {
  const known = PARAMETERS[page](state), found = {};
  for (const [name, text] of Object.entries(state)) {
    if (!known[name] || text === "") continue;
    if (known[name].fits(text)) found[name] = text;
    else wrong(`The address is left without ${name}=${text.slice(0, 60)}: ${name} ${known[name].says}.`);
  }
  return found;
}

/** A place among `most`, counted from 0; of one beyond the last it is told that the last is shown. */
export function within(name, chosen, most) {
  if (chosen < most) return chosen;
  wrong(`There is no ${name} ${chosen + 1} here, so ${name} ${most} is shown.`);
  return most - 1;
}

/** Those of the chosen ones that are known; of each other it is told that it is left out. */
export function among(what, chosen, known) {
  const all = new Set(known);
  for (const each of chosen) if (!all.has(each)) wrong(`There is no ${what} “${String(each).slice(0, 60)}” here; it is left out.`);
  return [...chosen].filter((each) => all.has(each));
}
