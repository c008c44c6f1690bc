// Look, for runs that read images: what the model says of one, and where each head looks.
import { within, wrong } from "../address.js";
import { getPacked, sendBytes, sendPacked } from "../api.js";
import { ARROWS, choice, el, pressed, refocused, say, svg } from "../dom.js";
import { covered, pixels } from "../draw/covered.js";
import { numbered } from "./explain_form.js";
import { mean, rowsOf } from "./look_told.js";
import { saver } from "./saving.js";

const LARGE = 340, SMALL = 104, GAP = 14, NAMED = 16;

/** A field that takes an image, by a click or by dropping one on it. `look(run)` sends it and shows what came back; `work`
 * does what takes a while. */
export function images(figure, chosen, remember, work) {
  let file = null, found = null, image = null, run = "";
  const input = el("input", { type: "file", accept: "image/*", onchange: () => take(input.files[0]) });
  const name = el("p", { class: "hint" }, "or drop one here");
  const label = el("label", {}, "Image", input);
  const field = el("div", {
    class: "field drop", ondragover: (event) => { event.preventDefault(); field.classList.add("over"); }, ondragleave: () => field.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); field.classList.remove("over"); take(event.dataTransfer.files[0]); },
  }, label, name);

  function take(given) {
    if (!given) return;
    file = given;
    name.textContent = given.name;
    field.dispatchEvent(new CustomEvent("taken", { bubbles: true }));
  }

  async function look(which, current) {
    if (!file) throw new Error("there is no image yet; choose one, or drop it here");
    const answer = await sendPacked(`/api/picture?run=${encodeURIComponent(which)}`, file), seen = await pixels(answer.image);
    if (!current()) return "";
    [run, found, image] = [which, answer, seen];
    Object.assign(chosen, { at: null, query: found.layers.at(-1)?.queries[0]?.number ?? null });
    say(`${run} looked at ${file.name}`);
    return draw(current);
  }

  async function draw(current) {
    const layers = found.layers, number = chosen.layer === "" || !layers.length ? layers.length - 1 : within("layer", Number(chosen.layer), layers.length);
    if (chosen.layer !== "" && layers.length) chosen.layer = number;
    const layer = layers[number], note = el("p", { class: "note" }), drawing = el("div", { class: "canvas whole" });
    remember({ run });
    if (!layer) {
      drawing.append(svg("svg", { width: LARGE, height: LARGE, viewBox: `0 0 ${LARGE} ${LARGE}`, role: "img", "aria-label": "The image" }, svg("image", { href: found.image, width: LARGE, height: LARGE })));
      note.textContent = "This model has no attention to look at.";
      figure.replaceChildren(drawing, outcome(), note);
      return "image";
    }
    const query = layer.queries.some((each) => each.number === chosen.query) ? chosen.query : layer.queries[0]?.number;
    const asked = layer.queries.length ? `query=${query}` : chosen.at && layer.asks ? `row=${chosen.at[0]}&column=${chosen.at[1]}` : "";
    const packed = await getPacked(`/api/picture/${found.look}/${number}?${asked}`);
    if (!current()) return "";
    const weights = packed.array(packed.weights), size = layer.seen[0] * layer.seen[1];
    const maps = Array.from({ length: layer.heads }, (_, head) => weights.subarray(head * size, (head + 1) * size));
    for (const head of chosen.heads) if (head >= layer.heads) wrong(`There is no head ${head + 1} here; it is left out.`);
    chosen.heads = new Set([...chosen.heads].filter((head) => head < layer.heads));
    const heads = [...chosen.heads], mixed = mean(heads.length ? heads.map((head) => maps[head]) : maps, size);
    const who = asker(layer, query);
    drawing.append(sheet(layer, number, maps, mixed, heads, who, note, query));
    refocused(figure, () => figure.replaceChildren(toolbar(layer, number, query, drawing, maps, who), drawing, note, outcome()));
    rest(note, layer, who);
    return "image";
  }

  function asker(layer, query) {
    if (layer.queries.length) return `“${layer.queries.find((each) => each.number === query).name}”`;
    if (chosen.at && layer.asks) return `the patch in row ${chosen.at[0] + 1}, column ${chosen.at[1] + 1}`;
    return layer.class_tokens ? (layer.class_tokens === 1 ? "the class token" : `the ${layer.class_tokens} class tokens`) : "the mean of all patches";
  }

  function rest(note, layer, who) {
    note.textContent = `${who} looks; darker is heavier, each picture up to its own largest weight. ${layer.asks ? "Click a patch to let it look; arrow keys move it, Escape lets it go." : ""}`;
  }

  /** The large picture, a small one for each head, and attention rollout, as one drawing. */
  function sheet(layer, number, maps, mixed, heads, who, note, query) {
    const high = LARGE * (image.height / image.width), small = SMALL * (image.height / image.width), across = maps.length > 4 ? 4 : 2;
    const tiles = [...maps.map((map, head) => ({ name: `head ${head + 1}`, map, grid: layer.seen, head })),
      ...(found.rollout ? [{ name: "rollout, all layers", map: found.array(found.rollout), grid: found.rollout.shape }] : [])];
    const rows = Math.ceil(tiles.length / across), narrow = figure.clientWidth < 560;
    const left = narrow ? 0 : LARGE + 2 * GAP, top = narrow ? high + GAP : 0;
    const width = Math.max(LARGE, left + across * (SMALL + GAP)), height = Math.max(high, top + rows * (small + GAP + NAMED)) + 4;
    const frame = chosen.at && layer.asks ? box(chosen.at, layer.asks, high, "frame") : null;
    const pointer = svg("rect", { class: "pointer", visibility: "hidden" });
    const boxes = layer.queries.find((each) => each.number === query)?.boxes ?? [];
    const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Attention over the image, layer ${number + 1}`, class: "picture" },
      svg("g", { tabindex: 0, role: "button", "data-key": "image", "aria-label": `The image, as ${who} looks at it`, onkeydown: (event) => key(event, layer) },
        svg("image", { href: covered(image, mixed, layer.seen), width: LARGE, height: high, preserveAspectRatio: "none" }),
        ...layer.lines.map(([[x0, y0], [x1, y1]]) => svg("line", { class: "border", x1: x0 * LARGE, y1: y0 * high, x2: x1 * LARGE, y2: y1 * high })),
        ...boxes.map(([x0, y0, x1, y1]) => svg("rect", { class: "frame", x: x0 * LARGE, y: y0 * high, width: (x1 - x0) * LARGE, height: (y1 - y0) * high })), frame, pointer),
      ...tiles.map((tile, place) => thumbnail(tile, left + (place % across) * (SMALL + GAP), top + Math.floor(place / across) * (small + GAP + NAMED), small, heads)));
    const spot = (event, grid) => {
      const bounds = drawn.getBoundingClientRect(), scale = width / bounds.width;
      return [Math.floor((((event.clientY - bounds.top) * scale) / high) * grid[0]), Math.floor((((event.clientX - bounds.left) * scale) / LARGE) * grid[1])];
    };
    const large = drawn.firstChild, which = heads.length === 1 ? `head ${heads[0] + 1}` : `the mean of ${heads.length || "all"} heads`;
    large.addEventListener("click", (event) => { if (layer.asks) move(spot(event, layer.asks), layer); });
    large.addEventListener("mouseleave", () => { pointer.setAttribute("visibility", "hidden"); rest(note, layer, who); });
    large.addEventListener("mousemove", (event) => {
      const [row, column] = spot(event, layer.seen), weight = mixed[row * layer.seen[1] + column];
      if (weight === undefined) return;
      const spotted = { x: (column * LARGE) / layer.seen[1], y: (row * high) / layer.seen[0], width: LARGE / layer.seen[1], height: high / layer.seen[0], visibility: "visible" };
      for (const [name, value] of Object.entries(spotted)) pointer.setAttribute(name, value);
      note.replaceChildren(el("b", {}, who), ` looks at row ${row + 1}, column ${column + 1} with weight `, el("span", { class: "formula" }, `${weight.toFixed(4)} = softmax(q·k/√d)`), ` (${which}, layer ${number + 1})`);
    });
    return drawn;
  }

  function thumbnail(tile, x, y, high, heads) {
    const press = () => {
      if (tile.head === undefined) return;
      chosen.heads = new Set(heads.length === 1 && heads[0] === tile.head ? [] : [tile.head]);
      work(draw);
    };
    const settings = tile.head === undefined ? {} : { tabindex: 0, role: "button", "aria-pressed": String(heads.includes(tile.head)), "data-key": tile.name, onclick: press, onkeydown: pressed(press) };
    return svg("g", { class: "tile", "aria-label": tile.name, ...settings },
      svg("text", { class: "tick", x, y: y + 11 }, `${tile.name}`),
      svg("image", { href: covered(image, tile.map, tile.grid), x, y: y + NAMED, width: SMALL, height: high, preserveAspectRatio: "none" }),
      heads.includes(tile.head) ? svg("rect", { class: "frame", x, y: y + NAMED, width: SMALL, height: high }) : null);
  }

  const box = ([row, column], [rows, columns], high, name) => svg("rect", { class: name, x: (column * LARGE) / columns, y: (row * high) / rows, width: LARGE / columns, height: high / rows });

  async function move(place, layer) {
    chosen.at = place && place.map((at, axis) => Math.max(0, Math.min(layer.asks[axis] - 1, at)));
    await work(draw);
    figure.querySelector("svg.picture > g")?.focus({ preventScroll: true });
  }

  function key(event, layer) {
    const steps = ARROWS[event.key];
    if (!layer.asks || !(steps || event.key === "Escape")) return;
    event.preventDefault();
    const from = chosen.at ?? layer.asks.map((side) => Math.floor(side / 2));
    move(steps ? from.map((at, axis) => at + steps[axis]) : null, layer);
  }

  function toolbar(layer, number, query, drawing, maps, looking) {
    const layers = numbered("Layer", found.layers.length, number, (each) => { chosen.layer = each; work(draw); });
    const queries = layer.queries.length ? el("select", { "aria-label": "Who looks", "data-key": "Who looks", onchange: (event) => { chosen.query = Number(event.target.value); work(draw); } },
      ...layer.queries.map((each) => el("option", { value: each.number, selected: each.number === query }, each.name))) : null;
    const who = layer.asks ? choice("Who looks", [[false, layer.class_tokens ? "class token" : "all patches"], [true, "a patch"]], chosen.at !== null, (one) => move(one ? layer.asks.map((side) => Math.floor(side / 2)) : null, layer)) : null;
    const whole = async () => (await sendBytes(`/api/picture/page?run=${encodeURIComponent(run)}`, file)).text();
    return el("div", { class: "toolbar" }, layers, queries, who,
      saver(() => drawing.querySelector("svg"), () => ({ run, image: file.name, labels: found.labels, sentence: found.sentence, layer: number + 1, asks: looking, maps: maps.map((map, head) => ({ head: head + 1, weights: rowsOf(map, layer.seen[1]) })) }), "attention-image", whole));
  }

  function outcome() {
    if (found.sentence !== undefined) return el("p", { class: "outcome" }, el("b", {}, "It says: "), found.sentence);
    const bars = found.labels.map(([label, share]) => {
      const bar = el("span", { class: "bar" });
      bar.style.width = `${100 * share}%`;
      return el("tr", {}, el("th", { scope: "row" }, label), el("td", { class: "bars" }, bar), el("td", {}, `${(100 * share).toFixed(1)} %`));
    });
    return el("table", { class: "outcome" }, el("caption", {}, `Probabilities, the softmax of the head's outputs${found.of > found.labels.length ? `: the first ${found.labels.length} of ${found.of}` : ""}`), el("tbody", {}, ...bars));
  }

  return { field, look };
}
