// A matrix as a table of numbers, read-only with a hover callback, or editable.
import { el, addRovingFocus } from "../dom.js";
import { textColour } from "./colours.js";

/** `cell`: number -> text; `shade`: number -> [r, g, b]; `onHover(row, column)` is called with the cell under the pointer or the focus. */
export function drawTable(name, values, { rows = [], columns = [], cell = String, shade = null, onHover = null } = {}) {
  const cells = values.map((row, i) => row.map((value, j) => {
    const td = el("td", onHover && { onmouseenter: () => onHover(i, j), onfocus: () => onHover(i, j) } || {}, cell(value));
    if (shade && Number.isFinite(value)) {
      const colour = shade(value);
      td.style.background = `rgb(${colour})`;
      td.style.color = textColour(colour);
    }
    return td;
  }));
  if (onHover) addRovingFocus(cells);
  return { node: wrapTable(name, cells, rows, columns), cells };
}

/** An editable matrix: `edit(row, column, number)` is called for every valid number. */
export function drawEditableTable(name, values, edit, { rows = [], columns = [] } = {}) {
  const cells = values.map((row, i) => row.map((value, j) => el("td", {}, el("input", {
    type: "number", step: "any", value, "aria-label": `${name}, row ${i + 1}, column ${j + 1}`,
    oninput: ({ target }) => {
      const wrong = target.value.trim() === "" || !Number.isFinite(target.valueAsNumber);
      target.setAttribute("aria-invalid", String(wrong));
      if (!wrong) edit(i, j, target.valueAsNumber);
    },
  }))));
  return { node: wrapTable(name, cells, rows, columns), cells };
}

function wrapTable(name, cells, rows, columns) {
  const heading = columns.length ? [el("tr", {}, rows.length ? el("td", { class: "corner" }) : null, ...columns.map((each) => el("th", { scope: "col" }, each)))] : [];
  const body = cells.map((row, i) => el("tr", {}, rows.length ? el("th", { scope: "row" }, rows[i]) : null, ...row));
  return el("div", {}, el("table", { class: "matrix" }, el("caption", {}, name), ...heading, ...body));
}
