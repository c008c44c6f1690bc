// Catalogue: the list of architectures, the module tree of one model, and the cost of several.
import { keepKnown } from "../address.js";
import { get } from "../api.js";
import { buttonGroup, el, field, announce } from "../dom.js";
import { formatShort } from "../draw/plot.js";
import { showCosts } from "./catalogue_costs.js";
import { showModel } from "./catalogue_model.js";

const SORTS = [["order", "as listed"], ["name", "by name"], ["year", "by year"], ["size", "by size"]];

export async function catalogue(view, state, keep) {
  const problem = el("p", { class: "problem", role: "alert" });
  const chosen = { model: state.model ?? "", costs: (state.costs ?? "").split("/").filter(Boolean), find: state.find ?? "", family: state.family ?? "", task: state.task ?? "", sort: state.sort ?? "order", what: state.what ?? "" };
  const find = el("input", { type: "search", placeholder: "name, paper or year", value: chosen.find, oninput: () => { chosen.find = find.value; list(); } });
  const family = el("select", { onchange: () => { chosen.family = family.value; list(); } });
  const task = el("select", { onchange: () => { chosen.task = task.value; list(); } });
  const own = el("div"), sorts = el("div"), names = el("div", { class: "entries" }), count = el("p", { class: "note" });
  const filters = el("section", { class: "panel", "aria-label": "Architectures" },
    field("Find", find), el("div", { class: "pair" }, field("Family", family), field("Task", task)), sorts, count, names, problem, own);
  const shown = el("section", { class: "panel", "aria-label": "Model" }, el("p", { class: "note" }, "Choose a size of an architecture to see its modules."));
  const plotted = el("section", { class: "panel", "aria-label": "Cost" });
  view.replaceChildren(el("h1", {}, "Catalogue"),
    el("p", { class: "lead" }, "Every architecture that can be built by name. Parameters, shapes, FLOPs and memory are counted on the model itself, built on the meta device without allocating weights."),
    el("div", { class: "columns wide" }, filters, el("div", { class: "stack" }, shown, plotted)));

  const entries = await get("/api/catalogue").catch((error) => { problem.textContent = error.message; return []; });
  const parts = await get("/api/catalogue/parts").catch(() => []);
  if (parts.length) own.append(el("h2", {}, "Your own parts"), el("ul", { class: "note" }, ...parts.map((part) =>
    el("li", {}, el("b", {}, part.kind), ` ${part.what}, ${part.file}${part.summary ? `: ${part.summary}` : ""}`))));
  const counts = new Map(), labels = new Map(), seen = new Set();
  let busy = false, counting = () => {}; // starts once the requested model is drawn
  const observer = new IntersectionObserver((changes) => {
    for (const each of changes) (each.isIntersecting ? seen.add : seen.delete).call(seen, each.target.dataset.entry);
    counting();
  });
  const options = (control, every, value) => {
    control.append(el("option", { value: "" }, "all"), ...[...new Set(every)].sort().map((each) => el("option", { value: each }, each)));
    control.value = value;
  };
  if (entries.length) {
    [chosen.family = ""] = chosen.family ? keepKnown("family", [chosen.family], entries.map((entry) => entry.family)) : [];
    [chosen.task = ""] = chosen.task ? keepKnown("task", [chosen.task], entries.flatMap((entry) => entry.tasks)) : [];
    chosen.costs = keepKnown("model", chosen.costs, entries.flatMap((entry) => entry.sizes.map((size) => size.name)));
  }
  options(family, entries.map((entry) => entry.family), chosen.family);
  options(task, entries.flatMap((entry) => entry.tasks), chosen.task);
  list();
  view.dataset.ready = "list";
  names.scrollTop = (names.querySelector("[aria-pressed=true]")?.closest("article").offsetTop ?? 0) - names.offsetTop; // scroll the list, not the page
  if (chosen.model) await open(chosen.model);
  await plotCosts();
  counting = countNext;
  await counting();

  function remember() {
    if (!names.isConnected) return; // another page is open by now
    keep({ model: chosen.model, costs: chosen.costs.join("/"), find: chosen.find, family: chosen.family, task: chosen.task, sort: chosen.sort === "order" ? "" : chosen.sort, what: chosen.what });
  }

  function list() {
    const words = chosen.find.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (entry) => (!chosen.family || entry.family === chosen.family) && (!chosen.task || entry.tasks.includes(chosen.task))
      && words.every((word) => `${entry.name} ${entry.paper} ${entry.year} ${entry.oracle}`.toLowerCase().includes(word));
    const first = (entry) => counts.get(entry.sizes[0].name) ?? 0;
    const order = { order: () => 0, name: (a, b) => a.name.localeCompare(b.name), year: (a, b) => a.year - b.year, size: (a, b) => first(a) - first(b) }[chosen.sort];
    const matching = entries.filter(fits).sort(order);
    sorts.replaceChildren(buttonGroup("Order", SORTS, chosen.sort, (sort) => { chosen.sort = sort; list(); counting(); }));
    sorts.firstChild.classList.add("small");
    count.textContent = `${matching.length} of ${entries.length} architectures`;
    labels.clear();
    names.replaceChildren(...matching.map(drawEntry));
    for (const entry of names.children) observer.observe(entry);
    remember();
  }

  function drawEntry(entry) {
    return el("article", { class: "entry", "data-entry": entry.name },
      el("h2", {}, entry.name, el("span", { class: "quiet" }, entry.year ? ` ${entry.year}, ${entry.family}` : " your own")),
      el("p", {}, entry.paper),
      el("p", { class: "note" }, entry.oracle ? `${entry.tasks.join(", ")}; checked against ${entry.oracle}` : entry.tasks.join(", ")),
      el("div", { class: "row small", role: "group", "aria-label": `Sizes of ${entry.name}` }, ...entry.sizes.map((size) => button(entry, size))));
  }

  function button(entry, size) {
    const label = el("span", { class: "quiet" }), known = counts.get(size.name);
    labels.set(size.name, label);
    if (known !== undefined) label.textContent = ` ${known ? formatShort(known) : "–"}`;
    return el("button", { type: "button", "data-model": size.name, "aria-pressed": String(size.name === chosen.model), title: sizeTitle(size), onclick: () => pick(size.name) },
      size.name.slice(entry.name.length + 1), label);
  }

  function sizeTitle(size) {
    const known = counts.has(size.name) ? `${counts.get(size.name) ? counts.get(size.name).toLocaleString("en") : "no"} parameters, ` : "";
    const words = size.vocab ? `a vocabulary of ${size.vocab.toLocaleString("en")}` : `${size.outputs.toLocaleString("en")} outputs`;
    return `${size.name}: ${known}${words}${size.published ? `, published as ${size.published}` : ""}`;
  }

  async function pick(name) {
    await open(name);
    await plotCosts();
  }

  async function open(name) {
    delete view.dataset.ready;
    chosen.model = name;
    for (const each of names.querySelectorAll("[data-model]")) each.setAttribute("aria-pressed", String(each.dataset.model === name));
    problem.textContent = "";
    try {
      await showModel(shown, name, { add: () => toggle(name), within: () => chosen.costs.includes(name) });
      remember();
      announce(`${name} is drawn`);
      view.dataset.ready = "model";
    } catch (error) {
      problem.textContent = error.message;
      view.dataset.ready = "problem";
    }
  }

  async function toggle(name) {
    chosen.costs = chosen.costs.includes(name) ? chosen.costs.filter((each) => each !== name) : [...chosen.costs, name];
    remember();
    await plotCosts();
  }

  async function plotCosts() {
    const every = [...new Set([...chosen.costs, chosen.model].filter(Boolean))];
    await showCosts(plotted, every, {
      what: chosen.what, choose: (what) => { chosen.what = what; remember(); },
      remove: (name) => (chosen.costs.includes(name) ? toggle(name) : null),
    });
  }

  /** Request the parameter counts of one architecture at a time, so that other requests wait for one at most: visible
   * entries first, the others only if the list is sorted by size. */
  async function countNext() {
    if (busy) return;
    busy = true;
    const due = (entry) => !counts.has(entry.sizes[0].name) && (chosen.sort === "size" || seen.has(entry.name));
    for (let entry = entries.find(due); entry && names.isConnected; entry = entries.find(due)) {
      const matching = await get(`/api/catalogue/${encodeURIComponent(entry.name)}/counts`).catch(() => ({}));
      for (const size of entry.sizes) showCount(size, matching[size.name] ?? null);
      if (chosen.sort === "size" && !entries.some(due)) list();
    }
    busy = false;
  }

  function showCount(size, count) {
    counts.set(size.name, count);
    const label = labels.get(size.name);
    if (!label) return;
    label.textContent = ` ${count ? formatShort(count) : "–"}`;
    label.parentElement.title = sizeTitle(size);
  }
}
