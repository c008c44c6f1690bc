// The page of the service: a form for each verb of each model, from the server's own description.
// Text is always set as text, never as markup.
const MAIN = ["text", "question", "source", "target", "image"];
const ids = (name) => document.getElementById(name);
let models = [], description, model, verb;

function el(tag, settings = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(settings)) {
    if (value === false || value === undefined || value === null) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

async function fetchJson(path) {
  const reply = await fetch(path);
  if (!reply.ok) throw new Error((await reply.json()).error);
  return reply.json();
}

function showChoices(place, names, chosen, choose) {
  ids(place).replaceChildren(...names.map((name) =>
    el("button", { type: "button", "aria-pressed": String(name === chosen), onclick: () => choose(name) }, name)));
}

function chooseModel(name) {
  model = models.find((each) => each.id === name);
  showChoices("models", models.map((each) => each.id), name, chooseModel);
  const context = model.context ? `, context ${model.context.toLocaleString()} tokens` : "";
  ids("about").textContent = `${model.kind}, ${model.parameters.toLocaleString()} parameters${context}, ${model.engine}`;
  chooseVerb(model.verbs[0]);
}

function chooseVerb(name) {
  verb = name;
  ids("answer").replaceChildren(el("p", { class: "quiet" }, "Send a request to see the answer."));
  ids("problem").textContent = ids("time").textContent = "";
  showChoices("verbs", model.verbs, name, chooseVerb);
  const { summary, requestBody } = description.paths[`/api/${name}`].post;
  ids("title").textContent = summary;
  const media = requestBody.content["application/json"], example = media.example;
  const schema = description.components.schemas[media.schema.$ref.split("/").pop()];
  const fields = Object.entries(schema.properties).filter(([key]) => key !== "model" && wants(key));
  const main = fields.filter(([key]) => MAIN.includes(key)), rest = fields.filter(([key]) => !MAIN.includes(key));
  ids("form").replaceChildren(
    ...main.map(([key, field]) => makeField(key, field, example[key])),
    rest.length ? el("details", {}, el("summary", {}, "Settings"), el("div", { class: "settings" },
      ...rest.map(([key, field]) => makeField(key, field, example[key])))) : "",
    el("button", { class: "main", type: "submit" }, "Send"),
  );
  showCurl();
}

/** Whether a field is one that this model has a use for. */
function wants(key) {
  if (key === "target" || key === "source") return model.verbs.includes("translate");
  return verb !== "classify" || key === (model.task === "classify-images" ? "image" : "text");
}

/** The type of a field; of several the first that is no list and not null. */
function findType(field) {
  const kinds = (field.anyOf ?? [field]).filter((kind) => kind.type !== "null");
  return kinds.find((kind) => kind.type !== "array") ?? kinds[0];
}

function makeField(key, field, example) {
  const kind = findType(field), settings = { name: key, id: `f-${key}` };
  const label = (inline, ...inside) => el("label", { for: `f-${key}`, class: inline ? "inline" : false, title: field.description }, ...inside);
  if (kind.type === "boolean") {
    const checked = key === "stream" || field.default === true;
    return label(true, el("input", { ...settings, type: "checkbox", checked }), key);
  }
  let control;
  if (key === "image") control = el("input", { ...settings, type: "file", accept: "image/*" });
  else if (kind.enum) control = el("select", settings, ...kind.enum.map((value) => el("option", {}, value)));
  else if (kind.type === "number" || kind.type === "integer") {
    control = el("input", { ...settings, type: "number", step: kind.type === "integer" ? 1 : "any", value: example ?? field.default });
  } else if (MAIN.includes(key)) control = el("textarea", settings, [example ?? ""].flat()[0]);
  else control = el("input", { ...settings, type: "text", "data-list": kind.type === "array" });
  return el("div", {}, label(false, key), control);
}

async function readBody() {
  const body = models.length > 1 ? { model: model.id } : {};
  for (const control of ids("form").elements) {
    if (!control.name) continue;
    if (control.type === "checkbox") { if (control.checked) body[control.name] = true; else if (control.defaultChecked) body[control.name] = false; }
    else if (control.type === "file") { if (control.files[0]) body.image = await encode(control.files[0]); }
    else if (control.value === "") continue;
    else if (control.type === "number") body[control.name] = Number(control.value);
    else body[control.name] = control.dataset.list !== undefined ? [control.value] : control.value;
  }
  return body;
}

const encode = (file) => new Promise((done, failed) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => failed(reader.error);
  reader.readAsDataURL(file);
});

async function showCurl() {
  const body = JSON.stringify(await readBody());
  const short = body.length > 600 ? `${body.slice(0, 300)}...${body.slice(-20)}` : body;
  ids("curl").textContent = `curl ${location.origin}/api/${verb} -H 'Content-Type: application/json' \\\n  -d '${short.replaceAll("'", "'\\''")}'`;
}

async function send(event) {
  event.preventDefault();
  const button = ids("form").querySelector("button.main"), started = performance.now();
  button.disabled = true;
  ids("problem").textContent = ids("time").textContent = "";
  ids("answer").replaceChildren();
  try {
    const body = await readBody();
    const reply = await fetch(`/api/${verb}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    if (!reply.ok) throw new Error((await reply.json()).error);
    if (body.stream) await showStream(reply.body);
    else ids("answer").replaceChildren(...(await reply.json()).outputs.map(showOutput));
    ids("time").textContent = `${Math.round(performance.now() - started).toLocaleString()} ms`;
  } catch (error) {
    ids("problem").textContent = error.message;
  } finally {
    button.disabled = false;
  }
}

async function showStream(stream) {
  const text = el("p", { class: "text" }), note = el("p", { class: "quiet" });
  ids("answer").replaceChildren(text, note);
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const each of events) {
      if (each === "data: [DONE]") continue;
      const found = JSON.parse(each.slice(6));
      if (found.error) throw new Error(found.error);
      text.textContent += found.text;
      if (found.log_prob !== undefined) note.textContent = `log P ${found.log_prob.toFixed(2)}, ended by ${found.ended}`;
    }
  }
}

function showOutput(output) {
  if (output.outputs) {
    const rows = output.outputs.map((each) => el("div", { class: "output" }, el("p", { class: "text" }, each.text),
      el("span", { class: "quiet" }, `log P ${each.log_prob.toFixed(2)}, score ${each.score.toFixed(3)}, ended by ${each.ended}`)));
    if (output.alignment) rows.push(showMap(output.alignment.target, output.alignment.source, output.alignment.weights));
    return el("div", {}, ...rows);
  }
  if (output.probabilities) return showBars(Object.entries(output.probabilities));
  const lists = output.masks ?? (output.words?.[0]?.probability !== undefined ? [output.words] : null);
  if (lists) return el("div", {}, ...lists.map((words) => showBars(words.map((each) => [each.word, each.probability]))));
  if (output.weights) return showMap(output.rows, output.columns, meanOf(output.weights));
  return el("pre", {}, JSON.stringify(output, null, 1));
}

const showBars = (rows) => el("div", { class: "output" }, ...rows.sort((a, b) => b[1] - a[1]).slice(0, 20).map(([name, value]) => {
  const bar = el("i");
  bar.style.width = `${100 * value}%`;
  return el("div", { class: "bar" }, el("span", {}, name), bar, el("b", {}, value.toFixed(3)));
}));

/** The mean of all layers and heads. */
function meanOf(weights) {
  const heads = weights.flat();
  return heads[0].map((row, r) => row.map((_, c) => heads.reduce((sum, head) => sum + head[r][c], 0) / heads.length));
}

function showMap(rows, columns, weights) {
  const cell = (weight, row, column) => {
    const node = el("td", { title: `${row} → ${column}: ${weight.toFixed(3)}` });
    node.style.opacity = Math.max(0, Math.min(1, weight));
    return node;
  };
  return el("div", { class: "maps" }, el("p", { class: "quiet" }, "Mean over layers and heads; rows attend to columns."), el("table", {},
    el("tr", {}, el("th"), ...columns.map((name) => el("th", {}, name))),
    ...rows.map((name, r) => el("tr", {}, el("th", {}, name), ...columns.map((column, c) => cell(weights[r][c], name, column))))));
}

ids("form").addEventListener("submit", send);
ids("form").addEventListener("input", showCurl);
try {
  [description, models] = await Promise.all([fetchJson("/openapi.json"), fetchJson("/v1/models").then((found) => found.data)]);
  chooseModel(models[0].id);
  document.body.dataset.ready = "true";
} catch (error) {
  ids("problem").textContent = error.message;
}
