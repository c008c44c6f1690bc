// Weights over an image: dark where they are heavy, over a pale copy of it, from none to the largest.
import { el } from "../dom.js";

const DARK = [11, 58, 115], STRENGTH = 0.8;

/** The pixels of an image, so that it can be covered again and again. */
export async function pixels(address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = el("canvas", { width: image.width, height: image.height });
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.getContext("2d").getImageData(0, 0, image.width, image.height);
}

/** `weights`: a Float32Array of rows x columns; the answer is an address to draw. */
export function covered(image, weights, [rows, columns]) {
  const { width, height, data } = image, made = new ImageData(width, height);
  const most = Math.max(1e-9, ...weights);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = 4 * (y * width + x);
      const weight = weights[Math.floor((y * rows) / height) * columns + Math.floor((x * columns) / width)];
      const share = STRENGTH * Math.min(1, Math.max(0, weight / most));
      const pale = 110 + (0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2]) * (145 / 255);
      DARK.forEach((dark, channel) => { made.data[at + channel] = (1 - share) * pale + share * dark; });
      made.data[at + 3] = 255;
    }
  }
  const canvas = el("canvas", { width, height });
  canvas.getContext("2d").putImageData(made, 0, 0);
  return canvas.toDataURL();
}
