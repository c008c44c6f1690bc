// One colour per head, from the colour-blind-safe palette of Okabe and Ito, and the colour scales of maps.
import { cssColour, el } from "../dom.js";

const HEADS = 8; // in style.css, for each theme
export const headColour = (head) => `var(--head-${1 + (head % HEADS)})`;

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** A scale: value 0..1 -> [r, g, b] between the theme's lowest and highest colour. */
export function weightColour() {
  const low = channels(cssColour("--map-low")), high = channels(cssColour("--map-high"));
  return (value) => low.map((from, each) => Math.round(from + (high[each] - from) * Math.sqrt(Math.max(0, Math.min(1, value)))));
}

/** A diverging scale: value -1..1 -> [r, g, b]. */
export function signedColour() {
  const zero = channels(cssColour("--map-low")), below = channels(cssColour("--map-below")), above = channels(cssColour("--map-high"));
  return (value) => zero.map((from, each) => Math.round(from + ((value < 0 ? below : above)[each] - from) * Math.min(1, Math.abs(value))));
}

const SHADES = 8192; // entries of the lookup table: more than a screen can show

/** Draw values as an image of one pixel each and return its data URL. For many values the colours come from a table. */
export function drawCells(values, columns, shade) {
  const rows = values.length / columns, canvas = el("canvas", { width: columns, height: rows }), image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer), packed = (value) => shade(value).reduce((sum, each, at) => sum + each * 256 ** at, 255 * 256 ** 3);
  if (values.length <= SHADES) values.forEach((value, index) => { pixels[index] = packed(value); });
  else {
    let low = Infinity, high = -Infinity;
    for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
    const step = (high - low) / (SHADES - 1) || 1, known = Uint32Array.from({ length: SHADES }, (_, at) => packed(low + step * at));
    values.forEach((value, index) => { pixels[index] = known[Math.round((value - low) / step)]; });
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas.toDataURL();
}

/** Black or white text, whichever has more contrast: at least 4.5 (WCAG 2.2, 1.4.3). */
export function textColour(shade) {
  const linear = (channel) => (channel <= 10 ? channel / 3294.6 : ((channel / 255 + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = shade.map(linear);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}
