// The shell: pages by the address's hash, so that every view has a link that restores it.
import { fitting, forget, listen, wrong } from "./address.js";
import { el } from "./dom.js";

// Each page is loaded when it is first shown, and the others as soon as that one is drawn.
const PAGES = {
  look: ["Look", () => import("./views/look.js")],
  step: ["Step", () => import("./views/step.js")],
  intervene: ["Intervene", () => import("./views/intervene.js")],
  explain: ["Explain", () => import("./views/explain.js")],
  catalogue: ["Catalogue", () => import("./views/catalogue.js")],
  runs: ["Runs", () => import("./views/runs.js")],
};
const GONE = "This page could not be loaded: the studio does not answer. Start it again and reload.";

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const page = Object.hasOwn(PAGES, path) ? path : "look";
  listen();
  if (path && page !== path) wrong(`There is no page “${path.slice(0, 60)}”; this is Look.`);
  return { page, state: fitting(page, Object.fromEntries(new URLSearchParams(query ?? ""))) };
}

/** Keep the view's state in the address without a new page in the history. */
function keep(page, state) {
  const told = Object.entries(state).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  history.replaceState(null, "", `#/${page}?${new URLSearchParams(told)}`);
}

let shows = 0;

async function show() {
  const { page, state } = place(), [title, load] = PAGES[page], turn = ++shows;
  document.getElementById("pages").replaceChildren(
    ...Object.entries(PAGES).map(([name, [label]]) =>
      el("a", { href: `#/${name}`, "aria-current": name === page ? "page" : null }, label)),
  );
  const view = document.getElementById("view");
  delete view.dataset.ready;
  document.title = `${title} · Headwise studio`;
  const found = await load().catch(() => null);
  if (turn !== shows) return; // another page was chosen meanwhile
  if (found) return found[page](view, state, (next) => keep(page, next));
  view.replaceChildren(el("p", { class: "problem", role: "alert" }, GONE));
  view.dataset.ready = "problem";
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  dispatchEvent(new Event("themed"));
});
for (const act of ["click", "change", "submit"]) document.getElementById("view").addEventListener(act, forget); // what is shown now was chosen on the page
addEventListener("hashchange", show);
await show();
for (const [, load] of Object.values(PAGES)) await load().catch(() => null);
