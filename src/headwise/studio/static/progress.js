// Long requests: a bar that shows how far one is, and a button that stops it. A page has one at a time.
import { get } from "./api.js";
import { announce } from "./dom.js";

const PATIENCE = 600, INTERVAL = 400; // milliseconds before the bar is shown, and between two questions

const panel = document.getElementById("progress"), [title, count] = panel.querySelectorAll("span"), bar = panel.querySelector("progress");
let task = null; // the one that is shown

class LongTask {
  constructor(label) {
    this.label = label;
    this.controller = new AbortController();
    this.part = 0;
    this.parts = 1;
  }

  /** The options of its next request, of which the server is asked how far it is. */
  options() {
    this.id = [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return { signal: this.controller.signal, headers: { "x-progress": this.id } };
  }

  /** Its next request is the one numbered `part`, from 0, of `parts`. */
  begin(part, parts) {
    [this.part, this.parts] = [part, parts];
  }
}

/** Run `work(task)`, whose requests are given the task. It is stopped by the button, by the next one, and when another page opens. */
export async function runLong(label, work) {
  stopLong();
  const mine = task = new LongTask(label), timer = setTimeout(() => follow(mine), PATIENCE);
  try {
    return await work(mine);
  } finally {
    clearTimeout(timer);
    if (task === mine) close();
  }
}

/** Stop what is running: its request fails, and the server gives it up. */
export function stopLong() {
  task?.controller.abort();
  close();
}

function close() {
  task = null;
  if (panel.contains(document.activeElement)) document.getElementById("view").focus();
  panel.hidden = true;
}

async function follow(mine) {
  title.textContent = mine.label;
  show(mine, { done: 0, total: 0 });
  panel.hidden = false;
  announce(`${mine.label}. A button stops it.`);
  while (task === mine) {
    const { id } = mine, found = await get(`/api/progress/${id}`).catch(() => null);
    if (task === mine && mine.id === id && found && found.state !== "unknown") show(mine, found);
    await new Promise((done) => { setTimeout(done, INTERVAL); });
  }
}

function show({ part, parts }, { state, done, total }) {
  count.textContent = state === "waiting" ? "waits for another request" : total ? `${done} of ${total}` : done ? `${done} steps` : "";
  if (parts > 1) count.textContent = `${part + 1} of ${parts}${total ? `, ${Math.floor((100 * done) / total)} %` : ""}`;
  if (total || parts > 1) bar.value = (part + (total ? done / total : 0)) / parts;
  else bar.removeAttribute("value"); // nobody knows how long it takes
}

panel.querySelector("button").addEventListener("click", stopLong);
