// Explain: how attention works, in numbers that one can change.
import { choice, el, refocused } from "../dom.js";
import { attention } from "./explain_attention.js";
import { heads } from "./explain_heads.js";
import { masks } from "./explain_masks.js";
import { neuron } from "./explain_neuron.js";
import { order } from "./explain_order.js";
import { positions } from "./explain_positions.js";

const TOPICS = {
  attention: ["Attention", "One head, three tokens, every number. Change an input or a weight and everything that follows from it changes; point at a number to see where it comes from.", attention],
  masks: ["Masks", "A mask decides who may look at whom: −∞ is added to a score before the softmax, whose exponential is exactly 0. Rows ask, columns are asked.", masks],
  positions: ["Positions", "Attention sees a set. What tells it where a token stands, and what does that make of the distance between two?", positions],
  heads: ["Heads", "Several heads look at one sentence at once, each through projections of its own; their outputs are put side by side and mixed by W_O.", heads],
  order: ["Order", "Shuffle the words: without positions the outputs move along with them and nothing else happens. With positions they change.", order],
  neuron: ["Neuron", "One weight of a real head, element by element: q times k, their sum, the scale, what masks and biases add, the softmax.", neuron],
};

export async function explain(view, state, keep) {
  const topic = TOPICS[state.topic] ? state.topic : "attention";
  const [, lead, page] = TOPICS[topic];
  const body = el("div"), problem = el("p", { class: "problem", role: "alert" });
  const topics = Object.entries(TOPICS).map(([name, [title]]) => [name, title]);
  view.replaceChildren(
    el("h1", {}, "Explain"),
    el("div", { class: "toolbar" }, choice("Topic", topics, topic, (next) => { location.hash = `#/explain?topic=${next}`; })),
    el("p", { class: "lead" }, lead), problem, body);

  /** Whatever a topic does: mistakes are told, and the page says when it is ready. */
  async function work(task) {
    problem.textContent = "";
    delete view.dataset.ready;
    try {
      await refocused(body, task);
      if (body.isConnected) view.dataset.ready = topic;
    } catch (error) {
      problem.textContent = error.message;
      if (body.isConnected) view.dataset.ready = "problem";
    }
  }
  await work(() => page(body, state, (next) => body.isConnected && keep({ topic, ...next }), work));
}
