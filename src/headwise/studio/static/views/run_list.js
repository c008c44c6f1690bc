// The list of runs in forms.
import { get } from "../api.js";
import { el } from "../dom.js";

const NO_RUNS = "There is no trained run here yet; train one with `headwise demo` or `headwise train`, and it appears here.";
export const NO_TEXT_RUNS = "No run here takes text yet; train one with `headwise demo`, and it appears here.";
const RETRY_MS = 3000; // milliseconds between searches for new runs

/** The runs that fit. If there are none, `problem` says so, and the page reloads when there is one. */
export async function findRuns(form, fits, message) {
  const ready = (all) => all.filter((each) => each.ready && fits(each));
  const all = await get("/api/runs"), runs = ready(all);
  if (runs.length) return { runs, problem: "" };
  const timer = setInterval(async () => {
    if (!form.isConnected) return clearInterval(timer);
    if (!document.hidden && ready(await get("/api/runs").catch(() => [])).length && form.isConnected) {
      clearInterval(timer);
      dispatchEvent(new Event("hashchange"));
    }
  }, RETRY_MS);
  return { runs, problem: all.some((each) => each.ready) ? message : NO_RUNS };
}

/** Fill a select with runs and select the `wanted` one; returns an error message, or an empty string. */
export function fillRuns(select, runs, wanted) {
  select.append(...runs.map((each) => el("option", { value: each.name }, each.model ? `${each.name} (${each.model})` : each.name)));
  if (!wanted) return "";
  if (!runs.some((each) => each.name === wanted)) return `There is no run “${wanted}” here that supports this page; choose another.`;
  select.value = wanted;
  return "";
}
