// A matrix as a table of numbers: to read, with the cell under the pointer or the focus told, or to edit.
import { el } from "../dom.js";
import { readable } from "./colours.js";

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** `cell`: number -> text; `shade`: number -> [r, g, b]; `tell(row, column)` hears where one looks. */
export function table(name, values, { rows = [], columns = [], cell = String, shade = null, tell = null } = {}) {
  const cells = values.map((row, i) => row.map((value, j) => {
    const made = el("td", tell && {
      tabindex: i || j ? -1 : 0, onmouseenter: () => tell(i, j), onfocus: () => tell(i, j), onkeydown: (event) => move(event, i, j),
    } || {}, cell(value));
    if (shade && Number.isFinite(value)) {
      const colour = shade(value);
      made.style.background = `rgb(${colour})`;
      made.style.color = readable(colour);
    }
    return made;
  }));

  function move(event, i, j) {
    const [down, right] = STEPS[event.key] ?? [0, 0], next = cells[i + down]?.[j + right];
    if (next && next !== cells[i][j]) { event.preventDefault(); next.focus(); }
  }
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
