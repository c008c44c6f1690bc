// A matrix as a table of numbers: to read, with the cell under the pointer or the focus told, or to edit.
import { el, roving } from "../dom.js";
import { readable } from "./colours.js";

/** `cell`: number -> text; `shade`: number -> [r, g, b]; `tell(row, column)` hears where one looks. */
export function table(name, values, { rows = [], columns = [], cell = String, shade = null, tell = null } = {}) {
  const cells = values.map((row, i) => row.map((value, j) => {
    const made = el("td", tell && { onmouseenter: () => tell(i, j), onfocus: () => tell(i, j) } || {}, cell(value));
    if (shade && Number.isFinite(value)) {
      const colour = shade(value);
      made.style.background = `rgb(${colour})`;
      made.style.color = readable(colour);
    }
    return made;
  }));
  if (tell) roving(cells);
  return { node: framed(name, cells, rows, columns), cells };
}

/** The same to edit: `edit(row, column, number)` hears of every number that is one. */
export function editable(name, values, edit, { rows = [], columns = [] } = {}) {
  const cells = values.map((row, i) => row.map((value, j) => el("td", {}, el("input", {
    type: "number", step: "any", value, "aria-label": `${name}, row ${i + 1}, column ${j + 1}`,
    oninput: ({ target }) => {
      const wrong = target.value.trim() === "" || !Number.isFinite(target.valueAsNumber);
      target.setAttribute("aria-invalid", String(wrong));
      if (!wrong) edit(i, j, target.valueAsNumber);
    },
  }))));
  return { node: framed(name, cells, rows, columns), cells };
}

function framed(name, cells, rows, columns) {
  const heading = columns.length ? [el("tr", {}, rows.length ? el("td", { class: "corner" }) : null, ...columns.map((each) => el("th", { scope: "col" }, each)))] : [];
  const body = cells.map((row, i) => el("tr", {}, rows.length ? el("th", { scope: "row" }, rows[i]) : null, ...row));
  return el("div", {}, el("table", { class: "matrix" }, el("caption", {}, name), ...heading, ...body));
}
