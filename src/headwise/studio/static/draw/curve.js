// Curves over a common axis, each with a band from its smallest to its largest values, and the values under the pointer.
import { el, svg } from "../dom.js";
import { headColour } from "./colours.js";

const HEIGHT = 260, LEFT = 56, BOTTOM = 40, TOP = 10, RIGHT = 12;

/** `lines`: [{ name, y, low, high }] over the numbers `x`; `onHover(index)` gets the index of the x under the pointer, or null. */
export function drawCurve(x, lines, { xLabel = "", yLabel = "", label = "Curves", onHover = () => {} } = {}) {
  const width = Math.max(280, Math.min(620, innerWidth - 80));
  const all = lines.flatMap((line) => [...line.low, ...line.high]);
  const [least, most] = [Math.min(...all), Math.max(...all)], room = (most - least || 1) * 0.06;
  const alongX = (value) => LEFT + ((value - x[0]) / (x.at(-1) - x[0] || 1)) * (width - LEFT - RIGHT);
  const alongY = (value) => HEIGHT - BOTTOM - ((value - least + room) / (most - least + 2 * room || 1)) * (HEIGHT - BOTTOM - TOP);
  const path = (values) => values.map((value, index) => `${index ? "L" : "M"}${alongX(x[index]).toFixed(1)} ${alongY(value).toFixed(1)}`).join("");
  const drawn = lines.flatMap(({ low, high, y }, number) => [
    svg("path", { d: `${path(high)}${path(low).replace("M", "L").split("L").filter(Boolean).reverse().map((point) => `L${point}`).join("")}Z`, fill: headColour(number), "fill-opacity": 0.16 }),
    svg("path", { class: "curve", d: path(y), stroke: headColour(number) }),
  ]);
  const pointer = svg("line", { y1: TOP, y2: HEIGHT - BOTTOM, stroke: "currentColor", "stroke-opacity": 0.4, visibility: "hidden" });
  const figure = svg("svg", {
    width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label, tabindex: 0,
    onmousemove: (event) => {
      const box = figure.getBoundingClientRect(), at = ((event.clientX - box.left) * width) / box.width;
      point(Math.round(((at - LEFT) / (width - LEFT - RIGHT)) * (x.length - 1)));
    },
    onmouseleave: () => point(-1),
    onkeydown: (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      point(Math.max(0, Math.min(x.length - 1, (stop ?? Math.floor(x.length / 2)) + by)));
    },
  }, axes(), ...drawn, pointer);
  let stop = null;
  return figure;

  function point(index) {
    stop = index >= 0 && index < x.length ? index : null;
    pointer.setAttribute("visibility", stop === null ? "hidden" : "visible");
    if (stop !== null) for (const end of ["x1", "x2"]) pointer.setAttribute(end, alongX(x[index]));
    onHover(stop);
  }

  function axes() {
    const text = (settings, content) => svg("text", settings, content);
    return svg("g", { class: "axes" },
      ...ticks(least, most).flatMap((each) => [
        svg("line", { x1: LEFT, x2: width - RIGHT, y1: alongY(each), y2: alongY(each) }),
        text({ x: LEFT - 6, y: alongY(each) + 4, "text-anchor": "end" }, short(each))]),
      ...ticks(x[0], x.at(-1)).map((each) => text({ x: alongX(each), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, short(each))),
      text({ x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, xLabel),
      text({ transform: `translate(12 ${(HEIGHT - BOTTOM + TOP) / 2}) rotate(-90)`, "text-anchor": "middle" }, yLabel));
  }
}

/** The legend: names and colours of the lines. */
export const drawLegend = (names) => el("div", { class: "row note" }, ...names.map((name, number) => {
  const swatch = el("span", { class: "swatch" });
  swatch.style.background = headColour(number);
  return el("span", {}, swatch, name);
}));

const short = (value) => String(Number(value.toPrecision(6))).replace("-", "−");

/** About five round numbers between two. */
function ticks(from, to) {
  const rough = (to - from || 1) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let each = Math.ceil(from / step); each * step <= to + step * 1e-6; each++) found.push(each * step);
  return found;
}
