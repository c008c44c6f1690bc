// Attention weights over an image: darker where they are larger, on a pale copy of it, scaled to the largest.
import { el } from "../dom.js";

const DARK = [11, 58, 115], STRENGTH = 0.8;

/** Load the pixels of an image. */
export async function loadPixels(url) {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = el("canvas", { width: image.width, height: image.height });
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.getContext("2d").getImageData(0, 0, image.width, image.height);
}

/** `weights`: a Float32Array of rows x columns; returns a data URL. */
export function drawOverlay(image, weights, [rows, columns]) {
  const { width, height, data } = image, output = new ImageData(width, height);
  const largest = Math.max(1e-9, ...weights);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const offset = 4 * (y * width + x);
      const weight = weights[Math.floor((y * rows) / height) * columns + Math.floor((x * columns) / width)];
      const share = STRENGTH * Math.min(1, Math.max(0, weight / largest));
      const pale = 110 + (0.299 * data[offset] + 0.587 * data[offset + 1] + 0.114 * data[offset + 2]) * (145 / 255);
      DARK.forEach((dark, channel) => { output.data[offset + channel] = (1 - share) * pale + share * dark; });
      output.data[offset + 3] = 255;
    }
  }
  const canvas = el("canvas", { width, height });
  canvas.getContext("2d").putImageData(output, 0, 0);
  return canvas.toDataURL();
}
