// Line plots with the values under the pointer, and dot plots with intervals, one row per arm.
import { svg } from "../dom.js";
import { headColour } from "./colours.js";

const TOP = 12, RIGHT = 18, BOTTOM = 46, LEFT = 62;

/** 1234567 -> "1.23M", 0.00045 -> "4.5e-4". */
export function formatShort(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, "e");
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return `${Number((value / (name === "k" ? 1e3 : unit)).toPrecision(3))}${name}`;
  }
  return String(Number(value.toPrecision(4)));
}

/** Colours repeat after eight; dashes distinguish the rounds. */
export const lineStyle = (index) => ({ stroke: headColour(index), "stroke-dasharray": ["", "6 3", "2 3"][Math.floor(index / 8) % 3] || null });

function nice(span, count) {
  const rough = span / count, unit = 10 ** Math.floor(Math.log10(rough));
  return unit * [1, 2, 5, 10].find((each) => each * unit >= rough * 0.999);
}

function linearTicks(low, high, count) {
  const step = nice(high - low, count), found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

function logTicks(low, high, count) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const each of [1, 2, 5]) found.push(each * 10 ** power);
  }
  const inside = found.filter((each) => each >= low * 0.999 && each <= high * 1.001);
  const tens = inside.filter((each) => Math.abs(Math.log10(each) % 1) < 1e-9);
  return inside.length <= count ? inside : tens.length > 1 ? tens : inside.filter((_, index) => index % 2 === 0);
}

/** A scale from values to pixels between `from` and `to`. */
function scale(values, { log = false, ticks = null, pad = 0 } = {}, from, to) {
  let low = Math.min(...values), high = Math.max(...values);
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
  const turn = log ? Math.log : (value) => value;
  const room = pad * (turn(high) - turn(low));
  const start = turn(low) - room, span = turn(high) - turn(low) + 2 * room;
  const back = log ? Math.exp : (value) => value;
  const count = Math.max(2, Math.floor(Math.abs(to - from) / (to < from ? 45 : 70)));
  const marks = ticks ?? (log ? logTicks : linearTicks)(back(start), back(start + span), count);
  return { toPixel: (value) => from + ((turn(value) - start) / span) * (to - from), ticks: marks };
}

const label = (x, y, words, settings = {}) => svg("text", { class: "tick", x, y, ...settings }, words);

/** `series`: [{ name, points: [[x, y]], faint: [[x, y]], dots, place }]; `onHover` gets the values under the pointer. */
export function drawPlot(series, { x = {}, y = {}, width = 640, height = 300, onHover = () => {} } = {}) {
  const usable = ([at, value]) => Number.isFinite(at) && Number.isFinite(value) && (!x.log || at > 0) && (!y.log || value > 0);
  const drawn = series.map((each, index) => ({ index, ...each, points: each.points.filter(usable), faint: (each.faint ?? []).filter(usable) }))
    .filter((each) => each.points.length);
  const settings = { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", class: "plot", tabindex: 0, "aria-label": `${y.label ?? ""} over ${x.label ?? ""}: ${drawn.map((each) => each.name).join(", ")}` };
  if (!drawn.length) return svg("svg", settings, label(width / 2, height / 2, "no data yet", { "text-anchor": "middle" }));
  const points = drawn.flatMap((each) => [...each.points, ...each.faint]);
  const xScale = scale(points.map(([at]) => at), x, LEFT, width - RIGHT);
  const yScale = scale(points.map(([, value]) => value), { pad: 0.04, ...y }, height - BOTTOM, TOP);
  const path = (found) => found.map(([at, value], index) => `${index ? "L" : "M"}${xScale.toPixel(at).toFixed(1)} ${yScale.toPixel(value).toFixed(1)}`).join("");
  const line = (each, found, opacity) => svg("path", { class: "curve", d: path(found), ...lineStyle(each.index), "stroke-opacity": opacity });
  const dot = (each, [at, value]) => svg("circle", { cx: xScale.toPixel(at), cy: yScale.toPixel(value), r: 3, fill: headColour(each.index) });
  const spots = svg("g", { visibility: "hidden" }), cross = svg("line", { class: "cross", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  const figure = svg("svg", settings,
    ...yScale.ticks.flatMap((at) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: yScale.toPixel(at), y2: yScale.toPixel(at) }),
      label(LEFT - 8, yScale.toPixel(at) + 4, formatShort(at), { "text-anchor": "end" })]),
    ...xScale.ticks.map((at) => label(xScale.toPixel(at), height - BOTTOM + 18, formatShort(at), { "text-anchor": "middle" })),
    label((LEFT + width - RIGHT) / 2, height - 8, x.label ?? "", { "text-anchor": "middle" }),
    ...drawn.filter((each) => each.faint.length).map((each) => line(each, each.faint, 0.25)),
    ...drawn.map((each) => line(each, each.points, 1)),
    ...drawn.filter((each) => each.dots || each.points.length === 1).flatMap((each) => each.points.map((point) => dot(each, point))),
    cross, spots);
  const stops = [...new Set(drawn.flatMap((each) => each.points.map(([at]) => at)))].sort((a, b) => a - b);
  let stop = null;
  function show(at) {
    for (const node of [cross, spots]) node.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at === null) return onHover(null);
    const found = drawn.map((each) => ({ ...each, point: nearest(each.points, at) }));
    for (const end of ["x1", "x2"]) cross.setAttribute(end, xScale.toPixel(at));
    spots.replaceChildren(...found.map((each) => dot(each, each.point)));
    return onHover(found.map(({ name, index, point }) => ({ name, index, x: point[0], y: point[1] })));
  }
  figure.addEventListener("mousemove", (event) => {
    const box = figure.getBoundingClientRect(), spot = ((event.clientX - box.left) / box.width) * width;
    stop = stops.reduce((best, at, index) => (Math.abs(xScale.toPixel(at) - spot) < Math.abs(xScale.toPixel(stops[best]) - spot) ? index : best), 0);
    show(stops[stop]);
  });
  figure.addEventListener("mouseleave", () => show(null));
  figure.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    stop = Math.max(0, Math.min(stops.length - 1, (stop ?? -move) + move));
    show(stops[stop]);
  });
  return figure;
}

function nearest(points, at) {
  return points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
}

/** `arms`: [{ name, seeds, estimate, published }]: a dot for each seed, an interval for each arm, a tick for published figures. */
export function drawDotPlot(arms, { title = "", width = 640, onHover = () => {} } = {}) {
  const STEP = 34, left = Math.min(0.4 * width, Math.max(60, ...arms.map((arm) => 7.5 * arm.name.length)) + 16);
  const values = arms.flatMap((arm) => [...Object.values(arm.seeds), arm.estimate?.low, arm.estimate?.high, arm.estimate?.mean, arm.published?.value])
    .filter(Number.isFinite);
  const height = STEP * arms.length + BOTTOM + 8;
  const settings = { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", class: "plot", "aria-label": `${title}: ${arms.map((arm) => arm.name).join(", ")}` };
  if (!values.length) return svg("svg", settings, label(width / 2, height / 2, "no scores yet", { "text-anchor": "middle" }));
  const xScale = scale(values, { pad: 0.06 }, left, width - RIGHT);
  const row = (arm, index) => {
    const y = STEP * (index + 0.5) + 4, found = arm.estimate;
    const least = Math.floor((left - 16) / 7.5);
    return svg("g", { onmouseenter: () => onHover(arm), onmouseleave: () => onHover(null), tabindex: 0, onfocus: () => onHover(arm), onblur: () => onHover(null), role: "listitem", "aria-label": arm.name },
      svg("rect", { x: 0, y: y - STEP / 2, width, height: STEP, fill: "transparent" }),
      label(left - 12, y + 4, arm.name.length > least ? `${arm.name.slice(0, least - 1)}…` : arm.name, { "text-anchor": "end" }),
      found && Number.isFinite(found.low) ? svg("line", { class: "interval", x1: xScale.toPixel(found.low), x2: xScale.toPixel(found.high), y1: y, y2: y }) : null,
      ...Object.values(arm.seeds).filter(Number.isFinite).map((value) => svg("circle", { class: "seed", cx: xScale.toPixel(value), cy: y, r: 4.5 })),
      found ? svg("line", { class: "mean", x1: xScale.toPixel(found.mean), x2: xScale.toPixel(found.mean), y1: y - 9, y2: y + 9 }) : null,
      arm.published ? svg("line", { class: "others", x1: xScale.toPixel(arm.published.value), x2: xScale.toPixel(arm.published.value), y1: y - 9, y2: y + 9 }) : null);
  };
  return svg("svg", { ...settings, role: "list" },
    ...xScale.ticks.flatMap((at) => [
      svg("line", { class: "grid", x1: xScale.toPixel(at), x2: xScale.toPixel(at), y1: 4, y2: height - BOTTOM }),
      label(xScale.toPixel(at), height - BOTTOM + 18, formatShort(at), { "text-anchor": "middle" })]),
    label((left + width - RIGHT) / 2, height - 8, title, { "text-anchor": "middle" }),
    ...arms.map(row));
}
