// One colour a head, told apart by eyes that see few colours too (Okabe and Ito), and shades of a map.
import { colour, el } from "../dom.js";

const HEADS = 8; // in style.css, for each theme
export const headColour = (head) => `var(--head-${1 + (head % HEADS)})`;

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** value 0..1 -> [r, g, b] between the theme's lowest and highest shade. */
export function ramp() {
  const low = channels(colour("--map-low")), high = channels(colour("--map-high"));
  return (value) => low.map((from, each) => Math.round(from + (high[each] - from) * Math.sqrt(Math.max(0, Math.min(1, value)))));
}

/** value -1..1 -> [r, g, b]: below zero to one side, above it to the other. */
export function signed() {
  const zero = channels(colour("--map-low")), below = channels(colour("--map-below")), above = channels(colour("--map-high"));
  return (value) => zero.map((from, each) => Math.round(from + ((value < 0 ? below : above)[each] - from) * Math.min(1, Math.abs(value))));
}

const SHADES = 8192; // more than an eye, or a screen, can tell apart

/** Values in rows as an image of one pixel each; the answer is an address to draw. Of many values, shades are looked up. */
export function shades(values, columns, shade) {
  const rows = values.length / columns, canvas = el("canvas", { width: columns, height: rows }), image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer), packed = (value) => shade(value).reduce((sum, each, at) => sum + each * 256 ** at, 255 * 256 ** 3);
  if (values.length <= SHADES) values.forEach((value, place) => { pixels[place] = packed(value); });
  else {
    let low = Infinity, high = -Infinity;
    for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
    const step = (high - low) / (SHADES - 1) || 1, known = Uint32Array.from({ length: SHADES }, (_, at) => packed(low + step * at));
    values.forEach((value, place) => { pixels[place] = known[Math.round((value - low) / step)]; });
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas.toDataURL();
}

/** Black or white, whichever has more contrast with a shade: at least 4.5 (WCAG 2.2, 1.4.3). */
export function readable(shade) {
  const linear = (channel) => (channel <= 10 ? channel / 3294.6 : ((channel / 255 + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = shade.map(linear);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}
