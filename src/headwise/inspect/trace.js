// A trace of Cα on a canvas that turns: drag, touch, or arrow keys; + and - or a pinch zoom, Home resets. No library.
// The page of `headwise inspect` has this file inside it, and the studio imports it.

const SPLIT = 5; // pieces of the spline between two residues
const NEAR = 14; // CSS pixels within which a residue is pointed at
const STEP = Math.PI / 18; // of an arrow key
const BANDS = [[90, "#0053d6"], [70, "#65cbf3"], [50, "#ffdb13"], [-Infinity, "#ff7d45"]]; // pLDDT, as in the AlphaFold database
const POSITIONS = ["#6a4fc9", "#3b6fb6", "#2a9d8f", "#a7a03a", "#e07b3c"];

export const CONFIDENCE_BANDS = [["90 to 100", "#0053d6"], ["70 to 90", "#65cbf3"], ["50 to 70", "#ffdb13"], ["below 50", "#ff7d45"]];
export const confidenceColour = (value) => BANDS.find(([least]) => value >= least)[1];

/** The colour of a place in the chain, 0 to 1. */
export function positionColour(share) {
  const at = Math.max(0, Math.min(1, share)) * (POSITIONS.length - 1), low = Math.min(Math.floor(at), POSITIONS.length - 2);
  return toHex(mix(channels(POSITIONS[low + 1]), channels(POSITIONS[low]), at - low));
}

const channels = (hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
const mix = (colour, other, share) => colour.map((value, index) => other[index] + share * (value - other[index]));
const toCss = (colour) => `rgb(${colour.map(Math.round).join(" ")})`;
const toHex = (colour) => `#${colour.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;

/** A point of a Catmull-Rom spline between b and c, of which a and d are the neighbours. */
const spline = (a, b, c, d, t) => b.map((_, axis) => 0.5 * (2 * b[axis] + (c[axis] - a[axis]) * t
  + (2 * a[axis] - 5 * b[axis] + 4 * c[axis] - d[axis]) * t ** 2 + (3 * b[axis] - a[axis] - 3 * c[axis] + d[axis]) * t ** 3));

const multiply = (left, right) => left.map((row) => right[0].map((_, j) => row.reduce((sum, value, k) => sum + value * right[k][j], 0)));
const turnAbout = {
  x: (angle) => [[1, 0, 0], [0, Math.cos(angle), -Math.sin(angle)], [0, Math.sin(angle), Math.cos(angle)]],
  y: (angle) => [[Math.cos(angle), 0, Math.sin(angle)], [0, 1, 0], [-Math.sin(angle), 0, Math.cos(angle)]],
};

/** Runs of a chain without missing residues, as points of a spline with the colour of the nearest residue. */
function smooth({ points, colours }) {
  const pieces = [];
  for (let i = 0; i + 1 < points.length; i++) {
    const b = points[i], c = points[i + 1];
    if (!b || !c) continue;
    const a = points[i - 1] ?? b, d = points[i + 2] ?? c;
    for (let step = 0; step < SPLIT; step++) {
      const [from, to] = [step / SPLIT, (step + 1) / SPLIT];
      pieces.push({ ends: [spline(a, b, c, d, from), spline(a, b, c, d, to)], colour: colours[from < 0.5 ? i : i + 1] });
    }
  }
  return pieces;
}

/** `chains`: [{ points: [[x, y, z] or null], colours: ["#rrggbb"], width }], the first of which answers the pointer;
 * `onHover` gets the index of the residue under the pointer, or null. Returns `show(chains)` and `turn(x, y)`. */
export function createTrace(canvas, { onHover = () => {} } = {}) {
  let chains = [], pieces = [], centre = [0, 0, 0], radius = 1, rotation = turnAbout.y(0), zoom = 1, chosen = null;
  const pointers = new Map();

  function show(next) {
    chains = next;
    pieces = chains.flatMap((chain) => smooth(chain).map((piece) => ({ ...piece, width: chain.width, rgb: channels(piece.colour) })));
    const known = chains.flatMap((chain) => chain.points.filter(Boolean));
    const main = chains[0].points.filter(Boolean);
    centre = [0, 1, 2].map((axis) => main.reduce((sum, point) => sum + point[axis], 0) / main.length);
    radius = 1 + Math.max(...known.map((point) => Math.hypot(...point.map((value, axis) => value - centre[axis]))));
    draw();
  }

  /** Screen coordinates, and the depth from -1 (far) to 1 (near). */
  function project(point) {
    const moved = point.map((value, axis) => (value - centre[axis]) / radius);
    const [x, y, z] = rotation.map((row) => row.reduce((sum, value, axis) => sum + value * moved[axis], 0));
    const size = Math.min(canvas.clientWidth, canvas.clientHeight) / 2, near = (zoom * 0.92 * 4) / (4 - z); // a mild perspective
    return [canvas.clientWidth / 2 + x * near * size, canvas.clientHeight / 2 - y * near * size, z];
  }

  function draw() {
    const density = devicePixelRatio || 1, [wide, high] = [canvas.clientWidth, canvas.clientHeight];
    if (!wide || !chains.length) return;
    [canvas.width, canvas.height] = [Math.round(wide * density), Math.round(high * density)];
    const pen = canvas.getContext("2d"), paper = (getComputedStyle(canvas).backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255]).slice(0, 3).map(Number);
    pen.scale(density, density);
    pen.lineCap = "round";
    const line = Math.max(0.6, Math.min(wide, high) / 420) * zoom;
    const seen = pieces.map((piece) => {
      const ends = piece.ends.map(project);
      return { ...piece, ends, depth: (ends[0][2] + ends[1][2]) / 2 };
    }).sort((a, b) => a.depth - b.depth);
    for (const { ends, rgb, width, depth } of seen) {
      for (const [style, extra] of [[toCss(paper), 2.4], [toCss(mix(rgb, paper, 0.55 + 0.45 * (depth + 1) / 2)), 0]]) {
        pen.beginPath();
        pen.strokeStyle = style;
        pen.lineWidth = (width + extra) * line;
        pen.lineCap = extra ? "butt" : "round";
        pen.moveTo(ends[0][0], ends[0][1]);
        pen.lineTo(ends[1][0], ends[1][1]);
        pen.stroke();
      }
    }
    if (chosen === null || !chains[0].points[chosen]) return;
    const [x, y] = project(chains[0].points[chosen]);
    pen.beginPath();
    pen.arc(x, y, 7, 0, 2 * Math.PI);
    pen.strokeStyle = getComputedStyle(canvas).color;
    pen.lineWidth = 2;
    pen.stroke();
  }

  function turn(right, down) {
    rotation = multiply(multiply(turnAbout.x(down), turnAbout.y(right)), rotation);
    draw();
  }

  function scale(by) {
    zoom = Math.max(0.5, Math.min(6, zoom * by));
    draw();
  }

  function choose(index) {
    if (index === chosen) return;
    chosen = index;
    onHover(index);
    draw();
  }

  function point(event) {
    const box = canvas.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = null, least = NEAR;
    (chains[0]?.points ?? []).forEach((each, index) => {
      if (!each) return;
      const at = project(each), gap = Math.hypot(at[0] - x, at[1] - y) - at[2]; // of two, the nearer one
      if (gap < least) [best, least] = [index, gap];
    });
    choose(best);
  }

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => choose(null));
  canvas.addEventListener("pointermove", (event) => {
    const last = pointers.get(event.pointerId);
    if (!last) return point(event);
    const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, spot]) => spot);
    const now = [event.clientX, event.clientY];
    pointers.set(event.pointerId, now);
    const distance = (spot) => Math.hypot(spot[0] - others[0][0], spot[1] - others[0][1]);
    if (others.length) return scale(distance(now) / (distance(last) || 1));
    const pixels = Math.PI / Math.min(canvas.clientWidth, canvas.clientHeight);
    return turn((now[0] - last[0]) * pixels, (now[1] - last[1]) * pixels);
  });
  canvas.addEventListener("keydown", (event) => {
    const turns = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] }[event.key];
    const zooms = { "+": 1.2, "=": 1.2, "-": 1 / 1.2 }[event.key];
    if (turns) turn(...turns);
    else if (zooms) scale(zooms);
    else if (event.key === "Home") { [rotation, zoom] = [turnAbout.y(0), 1]; draw(); }
    else return;
    event.preventDefault();
  });
  canvas.style.touchAction = "none"; // a finger turns the trace instead of scrolling the page
  new ResizeObserver(draw).observe(canvas);
  return { show, draw, turn, choose };
}
