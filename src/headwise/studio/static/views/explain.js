// Explain: how attention works, with numbers that can be edited.
import { buttonGroup, el, keepFocus } from "../dom.js";
import { attention } from "./explain_attention.js";
import { heads } from "./explain_heads.js";
import { masks } from "./explain_masks.js";
import { neuron } from "./explain_neuron.js";
import { order } from "./explain_order.js";
import { positions } from "./explain_positions.js";

const TOPICS = {
  attention: ["Attention", "One head, three tokens, every number. Edit an input or a weight and all results are recomputed; point at a number to see how it is computed.", attention],
  masks: ["Masks", "A mask decides which keys a query may attend to: −∞ is added to the other scores before the softmax, so their weights are exactly 0. Rows are queries, columns are keys.", masks],
  positions: ["Positions", "Attention itself ignores order. Position encodings add it: their values at each position, and the score they give to each distance.", positions],
  heads: ["Heads", "Several heads attend to one text at once, each with its own projections; their outputs are concatenated and projected by W_O.", heads],
  order: ["Order", "Permutation equivariance: without positions, shuffled words give the same outputs in shuffled order. With positions the outputs change.", order],
  neuron: ["Neuron", "One weight of a real head, element by element: the products q × k, their sum, the scale, masks and biases, the softmax.", neuron],
};

export async function explain(view, state, keep) {
  const topic = TOPICS[state.topic] ? state.topic : "attention";
  const [, lead, page] = TOPICS[topic];
  const body = el("div"), problem = el("p", { class: "problem", role: "alert" });
  const topics = Object.entries(TOPICS).map(([name, [title]]) => [name, title]);
  view.replaceChildren(
    el("h1", {}, "Explain"),
    el("div", { class: "toolbar" }, buttonGroup("Topic", topics, topic, (next) => { location.hash = `#/explain?topic=${next}`; })),
    el("p", { class: "lead" }, lead), problem, body);

  /** Run a task of a topic, show its error, and mark the page as ready. */
  async function runTask(task) {
    problem.textContent = "";
    delete view.dataset.ready;
    try {
      await keepFocus(body, task);
      if (body.isConnected) view.dataset.ready = topic;
    } catch (error) {
      problem.textContent = error.message;
      if (body.isConnected) view.dataset.ready = "problem";
    }
  }
  await runTask(() => page(body, state, (next) => body.isConnected && keep({ topic, ...next }), runTask));
}
