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
