// The shell: routes by the URL hash, so that every view has a link that restores it.
import { validParameters, dismissProblems, resetProblems, reportProblem } from "./address.js";
import { el } from "./dom.js";
import { stopLong } from "./progress.js";

// Each page is loaded when it is first shown, and the others as soon as that one is drawn.
const PAGES = {
  look: ["Look", () => import("./views/look.js")],
  step: ["Step", () => import("./views/step.js")],
  intervene: ["Intervene", () => import("./views/intervene.js")],
  fold: ["Fold", () => import("./views/fold.js")],
  play: ["Play", () => import("./views/play.js")],
  explain: ["Explain", () => import("./views/explain.js")],
  catalogue: ["Catalogue", () => import("./views/catalogue.js")],
  runs: ["Runs", () => import("./views/runs.js")],
};
const GONE = "This page could not be loaded: the studio does not respond. Start it again and reload.";

function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const page = Object.hasOwn(PAGES, path) ? path : "look";
  resetProblems();
  if (path && page !== path) reportProblem(`There is no page “${path.slice(0, 60)}”; Look is shown.`);
  return { page, state: validParameters(page, Object.fromEntries(new URLSearchParams(query ?? ""))) };
}

/** Write the view's state into the URL without a new history entry. */
function writeAddress(page, state) {
  const parameters = Object.entries(state).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  history.replaceState(null, "", `#/${page}?${new URLSearchParams(parameters)}`);
}

let renders = 0;

async function show() {
  const { page, state } = readAddress(), [title, load] = PAGES[page], turn = ++renders;
  stopLong();
  document.getElementById("pages").replaceChildren(
    ...Object.entries(PAGES).map(([name, [label]]) =>
      el("a", { href: `#/${name}`, "aria-current": name === page ? "page" : null }, label)),
  );
  const view = document.getElementById("view");
  delete view.dataset.ready;
  document.title = `${title} · Headwise studio`;
  const module = await load().catch(() => null);
  if (turn !== renders) return; // another page was chosen meanwhile
  if (module) return module[page](view, state, (next) => writeAddress(page, next));
  view.replaceChildren(el("p", { class: "problem", role: "alert" }, GONE));
  view.dataset.ready = "problem";
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  dispatchEvent(new Event("themechange"));
});
for (const act of ["click", "change", "submit"]) document.getElementById("view").addEventListener(act, dismissProblems); // the page now shows a choice of the user, not the URL
addEventListener("hashchange", show);
await show();
for (const [, load] of Object.values(PAGES)) await load().catch(() => null);
