// Runs to choose from.
import { el } from "../dom.js";

/** Fill a list with runs, the `wanted` one chosen; the answer is what is wrong with that, if anything. */
export function fill(select, runs, wanted) {
  select.append(...runs.map((each) => el("option", { value: each.name }, each.model ? `${each.name} (${each.model})` : each.name)));
  if (!wanted) return "";
  if (!runs.some((each) => each.name === wanted)) return `There is no run “${wanted}” here that could do this; choose another.`;
  select.value = wanted;
  return "";
}
