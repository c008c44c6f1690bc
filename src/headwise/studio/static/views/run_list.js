// Runs to choose from.
import { get } from "../api.js";
import { el } from "../dom.js";

const NONE = "There is no trained run here yet; train one with `headwise demo` or `headwise train`, and it shows up here.";
export const LACKING = "No run here reads texts yet; train one with `headwise demo`, and it shows up here.";
const AGAIN = 3000; // milliseconds until it is looked for runs again

/** The runs that fit, and a sentence where there are none: then `form` is shown anew as soon as there is one. */
export async function runsFor(form, fits, lacking) {
  const ready = (all) => all.filter((each) => each.ready && fits(each));
  const all = await get("/api/runs"), runs = ready(all);
  if (runs.length) return { runs, problem: "" };
  const timer = setInterval(async () => {
    if (!form.isConnected) return clearInterval(timer);
    if (!document.hidden && ready(await get("/api/runs").catch(() => [])).length && form.isConnected) {
      clearInterval(timer);
      dispatchEvent(new Event("hashchange"));
    }
  }, AGAIN);
  return { runs, problem: all.some((each) => each.ready) ? lacking : NONE };
}

/** Fill a list with runs, the `wanted` one chosen; the answer is what is wrong with that, if anything. */
export function fill(select, runs, wanted) {
  select.append(...runs.map((each) => el("option", { value: each.name }, each.model ? `${each.name} (${each.model})` : each.name)));
  if (!wanted) return "";
  if (!runs.some((each) => each.name === wanted)) return `There is no run “${wanted}” here that could do this; choose another.`;
  select.value = wanted;
  return "";
}
