// A text through a model: tokens and thumbnails at once, the weights of a layer when they are wanted.
import { getPacked, postPacked } from "../api.js";

/** `asked`: run, text and target; `kind` and `layer`: what is shown first, whose weights come along. */
export async function looked(asked, kind, layer) {
  const found = await postPacked("/api/look", { ...asked, kind, layer: Number.isInteger(layer) ? layer : -1 });
  found.layers = new Map([[`${found.shown.kind}/${found.shown.layer}`, found.array(found.shown.weights)]]);
  return found;
}

/** All heads of a layer, one after the other. */
export async function layerOf(found, kind, layer, exact = false) {
  const name = `${kind}/${layer}${exact ? "?exact=true" : ""}`;
  if (!found.layers.has(name)) {
    const packed = await getPacked(`/api/look/${found.look}/${name}`);
    found.layers.set(name, packed.array(packed.weights));
  }
  return found.layers.get(name);
}
