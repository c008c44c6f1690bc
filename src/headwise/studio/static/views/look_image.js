// Look for runs that take images: the prediction, and the attention of each head over the image.
import { clampIndex, reportProblem } from "../address.js";
import { getPacked, sendBytes, sendPacked } from "../api.js";
import { ARROWS, buttonGroup, el, onPress, keepFocus, announce, svg } from "../dom.js";
import { drawOverlay, loadPixels } from "../draw/overlay.js";
import { runLong } from "../progress.js";
import { indexSelect } from "./explain_form.js";
import { meanMap, toRows } from "./look_notes.js";
import { exportButtons } from "./export.js";

const LARGE = 340, SMALL = 104, GAP = 14, TITLE_HEIGHT = 16;

/** A field for an image, by file dialog or drag and drop. `look(run)` sends the image and draws the response; `work` runs an
 * asynchronous task. */
export function createImageView(figure, chosen, remember, work) {
  let file = null, result = null, image = null, run = "";
  const input = el("input", { type: "file", accept: "image/*", onchange: () => take(input.files[0]) });
  const name = el("p", { class: "hint" }, "or drop one here");
  const label = el("label", {}, "Image", input);
  const field = el("div", {
    class: "field drop", ondragover: (event) => { event.preventDefault(); field.classList.add("over"); }, ondragleave: () => field.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); field.classList.remove("over"); take(event.dataTransfer.files[0]); },
  }, label, name);

  function take(chosenFile) {
    if (!chosenFile) return;
    file = chosenFile;
    name.textContent = chosenFile.name;
    field.dispatchEvent(new CustomEvent("taken", { bubbles: true }));
  }

  async function look(which, current) {
    if (!file) throw new Error("there is no image yet; choose one, or drop it here");
    const answer = await runLong("Computing attention", (task) => sendPacked(`/api/picture?run=${encodeURIComponent(which)}`, file, task)), pixels = await loadPixels(answer.image);
    if (!current()) return "";
    [run, result, image] = [which, answer, pixels];
    Object.assign(chosen, { at: null, query: result.layers.at(-1)?.queries[0]?.number ?? null });
    announce(`${run} processed ${file.name}`);
    return draw(current);
  }

  async function draw(current) {
    const layers = result.layers, number = chosen.layer === "" || !layers.length ? layers.length - 1 : clampIndex("layer", Number(chosen.layer), layers.length);
    if (chosen.layer !== "" && layers.length) chosen.layer = number;
    const layer = layers[number], note = el("p", { class: "note" }), drawing = el("div", { class: "canvas whole" });
    remember({ run });
    if (!layer) {
      drawing.append(svg("svg", { width: LARGE, height: LARGE, viewBox: `0 0 ${LARGE} ${LARGE}`, role: "img", "aria-label": "The image" }, svg("image", { href: result.image, width: LARGE, height: LARGE })));
      note.textContent = "This model has no attention maps.";
      figure.replaceChildren(drawing, drawPrediction(), note);
      return "image";
    }
    const query = layer.queries.some((each) => each.number === chosen.query) ? chosen.query : layer.queries[0]?.number;
    const parameters = layer.queries.length ? `query=${query}` : chosen.at && layer.query_grid ? `row=${chosen.at[0]}&column=${chosen.at[1]}` : "";
    const packed = await getPacked(`/api/picture/${result.name}/${number}?${parameters}`);
    if (!current()) return "";
    const weights = packed.array(packed.weights), size = layer.key_grid[0] * layer.key_grid[1];
    const maps = Array.from({ length: layer.heads }, (_, head) => weights.subarray(head * size, (head + 1) * size));
    for (const head of chosen.heads) if (head >= layer.heads) reportProblem(`There is no head ${head + 1} here; it is ignored.`);
    chosen.heads = new Set([...chosen.heads].filter((head) => head < layer.heads));
    const heads = [...chosen.heads], meanWeights = meanMap(heads.length ? heads.map((head) => maps[head]) : maps, size);
    const querier = nameQuery(layer, query);
    drawing.append(drawSheet(layer, number, maps, meanWeights, heads, querier, note, query));
    keepFocus(figure, () => figure.replaceChildren(toolbar(layer, number, query, drawing, maps, querier), drawing, note, drawPrediction()));
    describe(note, layer, querier);
    return "image";
  }

  function nameQuery(layer, query) {
    if (layer.queries.length) return `“${layer.queries.find((each) => each.number === query).name}”`;
    if (chosen.at && layer.query_grid) return `the patch in row ${chosen.at[0] + 1}, column ${chosen.at[1] + 1}`;
    return layer.class_tokens ? (layer.class_tokens === 1 ? "the class token" : `the ${layer.class_tokens} class tokens`) : "the mean of all patches";
  }

  function describe(note, layer, querier) {
    note.textContent = `Attention from ${querier}; darker is larger, each image scaled to its own largest weight. ${layer.query_grid ? "Click a patch to use it as the query; arrow keys move it, Escape removes it." : ""}`;
  }

  /** The large image, a small one for each head, and attention rollout, as one drawing. */
  function drawSheet(layer, number, maps, meanWeights, heads, querier, note, query) {
    const high = LARGE * (image.height / image.width), small = SMALL * (image.height / image.width), across = maps.length > 4 ? 4 : 2;
    const tiles = [...maps.map((map, head) => ({ name: `head ${head + 1}`, map, grid: layer.key_grid, head })),
      ...(result.rollout ? [{ name: "rollout, all layers", map: result.array(result.rollout), grid: result.rollout.shape }] : [])];
    const rows = Math.ceil(tiles.length / across), narrow = figure.clientWidth < 560;
    const left = narrow ? 0 : LARGE + 2 * GAP, top = narrow ? high + GAP : 0;
    const width = Math.max(LARGE, left + across * (SMALL + GAP)), height = Math.max(high, top + rows * (small + GAP + TITLE_HEIGHT)) + 4;
    const frame = chosen.at && layer.query_grid ? box(chosen.at, layer.query_grid, high, "frame") : null;
    const pointer = svg("rect", { class: "pointer", visibility: "hidden" });
    const boxes = layer.queries.find((each) => each.number === query)?.boxes ?? [];
    const drawn = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Attention over the image, layer ${number + 1}`, class: "picture" },
      svg("g", { tabindex: 0, role: "button", "data-key": "image", "aria-label": `The image with the attention from ${querier}`, onkeydown: (event) => key(event, layer) },
        svg("image", { href: drawOverlay(image, meanWeights, layer.key_grid), width: LARGE, height: high, preserveAspectRatio: "none" }),
        ...layer.window_borders.map(([[x0, y0], [x1, y1]]) => svg("line", { class: "border", x1: x0 * LARGE, y1: y0 * high, x2: x1 * LARGE, y2: y1 * high })),
        ...boxes.map(([x0, y0, x1, y1]) => svg("rect", { class: "frame", x: x0 * LARGE, y: y0 * high, width: (x1 - x0) * LARGE, height: (y1 - y0) * high })), frame, pointer),
      ...tiles.map((tile, index) => thumbnail(tile, left + (index % across) * (SMALL + GAP), top + Math.floor(index / across) * (small + GAP + TITLE_HEIGHT), small, heads)));
    const spot = (event, grid) => {
      const bounds = drawn.getBoundingClientRect(), scale = width / bounds.width;
      return [Math.floor((((event.clientY - bounds.top) * scale) / high) * grid[0]), Math.floor((((event.clientX - bounds.left) * scale) / LARGE) * grid[1])];
    };
    const large = drawn.firstChild, which = heads.length === 1 ? `head ${heads[0] + 1}` : `the mean of ${heads.length || "all"} heads`;
    large.addEventListener("click", (event) => { if (layer.query_grid) move(spot(event, layer.query_grid), layer); });
    large.addEventListener("mouseleave", () => { pointer.setAttribute("visibility", "hidden"); describe(note, layer, querier); });
    large.addEventListener("mousemove", (event) => {
      const [row, column] = spot(event, layer.key_grid), weight = meanWeights[row * layer.key_grid[1] + column];
      if (weight === undefined) return;
      const rectangle = { x: (column * LARGE) / layer.key_grid[1], y: (row * high) / layer.key_grid[0], width: LARGE / layer.key_grid[1], height: high / layer.key_grid[0], visibility: "visible" };
      for (const [name, value] of Object.entries(rectangle)) pointer.setAttribute(name, value);
      note.replaceChildren(el("b", {}, querier), ` attends to row ${row + 1}, column ${column + 1} with weight `, el("span", { class: "formula" }, `${weight.toFixed(4)} = softmax(q·k/√d)`), ` (${which}, layer ${number + 1})`);
    });
    return drawn;
  }

  function thumbnail(tile, x, y, high, heads) {
    const press = () => {
      if (tile.head === undefined) return;
      chosen.heads = new Set(heads.length === 1 && heads[0] === tile.head ? [] : [tile.head]);
      work(draw);
    };
    const settings = tile.head === undefined ? {} : { tabindex: 0, role: "button", "aria-pressed": String(heads.includes(tile.head)), "data-key": tile.name, onclick: press, onkeydown: onPress(press) };
    return svg("g", { class: "tile", "aria-label": tile.name, ...settings },
      svg("text", { class: "tick", x, y: y + 11 }, `${tile.name}`),
      svg("image", { href: drawOverlay(image, tile.map, tile.grid), x, y: y + TITLE_HEIGHT, width: SMALL, height: high, preserveAspectRatio: "none" }),
      heads.includes(tile.head) ? svg("rect", { class: "frame", x, y: y + TITLE_HEIGHT, width: SMALL, height: high }) : null);
  }

  const box = ([row, column], [rows, columns], high, name) => svg("rect", { class: name, x: (column * LARGE) / columns, y: (row * high) / rows, width: LARGE / columns, height: high / rows });

  async function move(index, layer) {
    chosen.at = index && index.map((at, axis) => Math.max(0, Math.min(layer.query_grid[axis] - 1, at)));
    await work(draw);
    figure.querySelector("svg.picture > g")?.focus({ preventScroll: true });
  }

  function key(event, layer) {
    const steps = ARROWS[event.key];
    if (!layer.query_grid || !(steps || event.key === "Escape")) return;
    event.preventDefault();
    const from = chosen.at ?? layer.query_grid.map((side) => Math.floor(side / 2));
    move(steps ? from.map((at, axis) => at + steps[axis]) : null, layer);
  }

  function toolbar(layer, number, query, drawing, maps, querier) {
    const layers = indexSelect("Layer", result.layers.length, number, (each) => { chosen.layer = each; work(draw); });
    const queries = layer.queries.length ? el("select", { "aria-label": "Query", "data-key": "Query", onchange: (event) => { chosen.query = Number(event.target.value); work(draw); } },
      ...layer.queries.map((each) => el("option", { value: each.number, selected: each.number === query }, each.name))) : null;
    const querySwitch = layer.query_grid ? buttonGroup("Query", [[false, layer.class_tokens ? "class token" : "all patches"], [true, "a patch"]], chosen.at !== null, (one) => move(one ? layer.query_grid.map((side) => Math.floor(side / 2)) : null, layer)) : null;
    const whole = async () => (await sendBytes(`/api/picture/page?run=${encodeURIComponent(run)}`, file)).text();
    return el("div", { class: "toolbar" }, layers, queries, querySwitch,
      exportButtons(() => drawing.querySelector("svg"), () => ({ run, image: file.name, labels: result.labels, text: result.text, layer: number + 1, query: querier, maps: maps.map((map, head) => ({ head: head + 1, weights: toRows(map, layer.key_grid[1]) })) }), "attention-image", whole));
  }

  function drawPrediction() {
    if (result.text !== undefined) return el("p", { class: "outcome" }, el("b", {}, "Prediction: "), result.text);
    const bars = result.labels.map(([label, share]) => {
      const bar = el("span", { class: "bar" });
      bar.style.width = `${100 * share}%`;
      return el("tr", {}, el("th", { scope: "row" }, label), el("td", { class: "bars" }, bar), el("td", {}, `${(100 * share).toFixed(1)} %`));
    });
    return el("table", { class: "outcome" }, el("caption", {}, `Class probabilities${result.classes > result.labels.length ? `: the first ${result.labels.length} of ${result.classes}` : ""}`), el("tbody", {}, ...bars));
  }

  return { field, look };
}
