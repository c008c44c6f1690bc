// The shell: pages by the address's hash, so that every view has a link that restores it.
import { el } from "./dom.js";
import { catalogue } from "./views/catalogue.js";
import { explain } from "./views/explain.js";
import { intervene } from "./views/intervene.js";
import { look } from "./views/look.js";
import { runs } from "./views/runs.js";
import { step } from "./views/step.js";

const PAGES = { look: ["Look", look], step: ["Step", step], intervene: ["Intervene", intervene], explain: ["Explain", explain], catalogue: ["Catalogue", catalogue], runs: ["Runs", runs] };

export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: PAGES[path] ? path : "look", state: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

/** Keep the view's state in the address without a new page in the history. */
export function keep(page, state) {
  const told = Object.entries(state).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  history.replaceState(null, "", `#/${page}?${new URLSearchParams(told)}`);
}

function show() {
  const { page, state } = place();
  const nav = document.getElementById("pages");
  nav.replaceChildren(
    ...Object.entries(PAGES).map(([name, [title]]) =>
      el("a", { href: `#/${name}`, "aria-current": name === page ? "page" : null }, title)),
  );
  const view = document.getElementById("view");
  delete view.dataset.ready;
  document.title = `${PAGES[page][0]} · Headwise studio`;
  PAGES[page][1](view, state, (next) => keep(page, next));
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  dispatchEvent(new Event("themed"));
});
addEventListener("hashchange", show);
show();
