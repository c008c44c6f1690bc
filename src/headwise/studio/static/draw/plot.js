// Curves over a common axis, with the values under the pointer; and dots with intervals, a line for each arm.
import { svg } from "../dom.js";
import { headColour } from "./colours.js";

const TOP = 12, RIGHT = 18, BOTTOM = 46, LEFT = 62;

/** 1234567 -> "1.23M", 0.00045 -> "4.5e-4". */
export function short(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, "e");
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return `${Number((value / (name === "k" ? 1e3 : unit)).toPrecision(3))}${name}`;
  }
  return String(Number(value.toPrecision(4)));
}

/** Colours go round; dashes tell the rounds apart. */
export const lineStyle = (place) => ({ stroke: headColour(place), "stroke-dasharray": ["", "6 3", "2 3"][Math.floor(place / 8) % 3] || null });

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
  return inside.length <= count ? inside : tens.length > 1 ? tens : inside.filter((_, place) => place % 2 === 0);
}

/** Values to places between `from` and `to`. */
function scale(values, { log = false, ticks = null, pad = 0 } = {}, from, to) {
  let low = Math.min(...values), high = Math.max(...values);
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
  const turn = log ? Math.log : (value) => value;
  const room = pad * (turn(high) - turn(low));
  const start = turn(low) - room, span = turn(high) - turn(low) + 2 * room;
  const back = log ? Math.exp : (value) => value;
  const count = Math.max(2, Math.floor(Math.abs(to - from) / (to < from ? 45 : 70)));
  const marks = ticks ?? (log ? logTicks : linearTicks)(back(start), back(start + span), count);
  return { place: (value) => from + ((turn(value) - start) / span) * (to - from), ticks: marks };
}

const label = (x, y, words, settings = {}) => svg("text", { class: "tick", x, y, ...settings }, words);

/** `series`: [{ name, points: [[x, y]], faint: [[x, y]], dots, place }]; `tell` hears the values under the pointer. */
export function plot(series, { x = {}, y = {}, width = 640, height = 300, tell = () => {} } = {}) {
  const usable = ([at, value]) => Number.isFinite(at) && Number.isFinite(value) && (!x.log || at > 0) && (!y.log || value > 0);
  const drawn = series.map((each, place) => ({ place, ...each, points: each.points.filter(usable), faint: (each.faint ?? []).filter(usable) }))
    .filter((each) => each.points.length);
  const settings = { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", class: "plot", tabindex: 0, "aria-label": `${y.label ?? ""} over ${x.label ?? ""}: ${drawn.map((each) => each.name).join(", ")}` };
  if (!drawn.length) return svg("svg", settings, label(width / 2, height / 2, "nothing to draw yet", { "text-anchor": "middle" }));
  const points = drawn.flatMap((each) => [...each.points, ...each.faint]);
  const across = scale(points.map(([at]) => at), x, LEFT, width - RIGHT);
  const down = scale(points.map(([, value]) => value), { pad: 0.04, ...y }, height - BOTTOM, TOP);
  const path = (found) => found.map(([at, value], place) => `${place ? "L" : "M"}${across.place(at).toFixed(1)} ${down.place(value).toFixed(1)}`).join("");
  const line = (each, found, opacity) => svg("path", { class: "curve", d: path(found), ...lineStyle(each.place), "stroke-opacity": opacity });
  const dot = (each, [at, value]) => svg("circle", { cx: across.place(at), cy: down.place(value), r: 3, fill: headColour(each.place) });
  const spots = svg("g", { visibility: "hidden" }), cross = svg("line", { class: "cross", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  const figure = svg("svg", settings,
    ...down.ticks.flatMap((at) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: down.place(at), y2: down.place(at) }),
      label(LEFT - 8, down.place(at) + 4, short(at), { "text-anchor": "end" })]),
    ...across.ticks.map((at) => label(across.place(at), height - BOTTOM + 18, short(at), { "text-anchor": "middle" })),
    label((LEFT + width - RIGHT) / 2, height - 8, x.label ?? "", { "text-anchor": "middle" }),
    ...drawn.filter((each) => each.faint.length).map((each) => line(each, each.faint, 0.25)),
    ...drawn.map((each) => line(each, each.points, 1)),
    ...drawn.filter((each) => each.dots || each.points.length === 1).flatMap((each) => each.points.map((point) => dot(each, point))),
    cross, spots);
  const stops = [...new Set(drawn.flatMap((each) => each.points.map(([at]) => at)))].sort((a, b) => a - b);
  let stop = null;
  function show(at) {
    for (const node of [cross, spots]) node.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at === null) return tell(null);
    const found = drawn.map((each) => ({ ...each, point: nearest(each.points, at) }));
    for (const end of ["x1", "x2"]) cross.setAttribute(end, across.place(at));
    spots.replaceChildren(...found.map((each) => dot(each, each.point)));
    return tell(found.map(({ name, place, point }) => ({ name, place, x: point[0], y: point[1] })));
  }
  figure.addEventListener("mousemove", (event) => {
    const box = figure.getBoundingClientRect(), spot = ((event.clientX - box.left) / box.width) * width;
    stop = stops.reduce((best, at, place) => (Math.abs(across.place(at) - spot) < Math.abs(across.place(stops[best]) - spot) ? place : best), 0);
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

/** `lanes`: [{ name, seeds, estimate, published }]: a dot for each seed, an interval for each arm, a tick for what others report. */
export function dots(lanes, { title = "", width = 640, tell = () => {} } = {}) {
  const STEP = 34, left = Math.min(0.4 * width, Math.max(60, ...lanes.map((lane) => 7.5 * lane.name.length)) + 16);
  const values = lanes.flatMap((lane) => [...Object.values(lane.seeds), lane.estimate?.low, lane.estimate?.high, lane.estimate?.mean, lane.published?.value])
    .filter(Number.isFinite);
  const height = STEP * lanes.length + BOTTOM + 8;
  const settings = { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", class: "plot", "aria-label": `${title}: ${lanes.map((lane) => lane.name).join(", ")}` };
  if (!values.length) return svg("svg", settings, label(width / 2, height / 2, "no scores yet", { "text-anchor": "middle" }));
  const across = scale(values, { pad: 0.06 }, left, width - RIGHT);
  const row = (lane, place) => {
    const y = STEP * (place + 0.5) + 4, found = lane.estimate;
    const least = Math.floor((left - 16) / 7.5);
    return svg("g", { onmouseenter: () => tell(lane), onmouseleave: () => tell(null), tabindex: 0, onfocus: () => tell(lane), onblur: () => tell(null), role: "listitem", "aria-label": lane.name },
      svg("rect", { x: 0, y: y - STEP / 2, width, height: STEP, fill: "transparent" }),
      label(left - 12, y + 4, lane.name.length > least ? `${lane.name.slice(0, least - 1)}…` : lane.name, { "text-anchor": "end" }),
      found && Number.isFinite(found.low) ? svg("line", { class: "interval", x1: across.place(found.low), x2: across.place(found.high), y1: y, y2: y }) : null,
      ...Object.values(lane.seeds).filter(Number.isFinite).map((value) => svg("circle", { class: "seed", cx: across.place(value), cy: y, r: 4.5 })),
      found ? svg("line", { class: "mean", x1: across.place(found.mean), x2: across.place(found.mean), y1: y - 9, y2: y + 9 }) : null,
      lane.published ? svg("line", { class: "others", x1: across.place(lane.published.value), x2: across.place(lane.published.value), y1: y - 9, y2: y + 9 }) : null);
  };
  return svg("svg", { ...settings, role: "list" },
    ...across.ticks.flatMap((at) => [
      svg("line", { class: "grid", x1: across.place(at), x2: across.place(at), y1: 4, y2: height - BOTTOM }),
      label(across.place(at), height - BOTTOM + 18, short(at), { "text-anchor": "middle" })]),
    label((left + width - RIGHT) / 2, height - 8, title, { "text-anchor": "middle" }),
    ...lanes.map(row));
}
