// Attention maps of a text: tokens and thumbnails first, the weights of a layer on demand.
import { getPacked, postPacked } from "../api.js";
import { runLong } from "../progress.js";

/** `request`: run, text and target; `kind` and `layer`: the layer shown first, whose weights are part of the response. */
export async function fetchMaps(request, kind, layer) {
  const body = { ...request, kind, layer: Number.isInteger(layer) ? layer : -1 };
  const maps = await runLong("Computing attention", (task) => postPacked("/api/look", body, task));
  maps.layers = new Map([[`${maps.shown.kind}/${maps.shown.layer}`, maps.array(maps.shown.weights)]]);
  return maps;
}

/** The weights of all heads of a layer. */
export async function fetchLayer(maps, kind, layer, exact = false) {
  const name = `${kind}/${layer}${exact ? "?exact=true" : ""}`;
  if (!maps.layers.has(name)) {
    const response = await getPacked(`/api/look/${maps.name}/${name}`);
    maps.layers.set(name, response.array(response.weights));
  }
  return maps.layers.get(name);
}
