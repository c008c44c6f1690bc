// One colour a head, told apart by eyes that see few colours too (Okabe and Ito), and shades of a map.
import { colour } from "../dom.js";

const HEADS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c8c3c"];
export const headColour = (head) => HEADS[head % HEADS.length];

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

/** Black or white, whichever has more contrast with a shade: at least 4.5 (WCAG 2.2, 1.4.3). */
export function readable(shade) {
  const linear = (channel) => (channel <= 10 ? channel / 3294.6 : ((channel / 255 + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = shade.map(linear);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}
