// Rows of metrics as they come in, and curves made of them.
import { post } from "../api.js";

const AXES = new Set(["step", "minutes", "epoch"]);

export class Curves {
  constructor() { this.known = new Map(); }

  rows(name) { return this.known.get(name) ?? []; }

  /** Only what is new travels: the server is told how many rows are here and where they end. */
  async follow(names) {
    if (!names.length) return;
    const asked = names.map((run) => ({ run, since: this.rows(run).length, step: this.rows(run).at(-1)?.step ?? 0 }));
    for (const { run, since, rows } of await post("/api/runs/rows", { runs: asked })) {
      this.known.set(run, [...this.rows(run).slice(0, since), ...rows]);
    }
  }

  /** What can be drawn: the loss first, then scores, then the rest. */
  names(runs) {
    const found = new Set(runs.flatMap((run) => this.rows(run).flatMap((row) => Object.keys(row))).filter((name) => !AXES.has(name)));
    const rank = (name) => (name === "loss" ? 0 : name.startsWith("valid ") ? 1 : 2);
    return [...found].sort((a, b) => rank(a) - rank(b));
  }

  last(run, what) { return this.rows(run).findLast((row) => Number.isFinite(row[what]))?.[what] ?? null; }

  series(run, what, over, smooth) {
    const rows = this.rows(run), at = over === "epoch" ? epochs(rows) : rows.map((row) => row[over]);
    const raw = rows.map((row, place) => [at[place], row[what]]).filter(([, value]) => Number.isFinite(value));
    return smooth ? { points: smoothed(raw, smooth), faint: raw } : { points: raw };
  }
}

/** Exponential means, corrected for their start as Adam's moments are. */
export function smoothed(points, weight) {
  let mean = 0;
  return points.map(([at, value], place) => {
    mean = weight * mean + (1 - weight) * value;
    return [at, mean / (1 - weight ** (place + 1))];
  });
}

/** Rows count whole epochs; between their beginnings the steps tell how far. */
function epochs(rows) {
  const begins = new Map();
  for (const row of rows) if (!begins.has(row.epoch)) begins.set(row.epoch, row.step);
  const lengths = [...begins.keys()].filter((epoch) => begins.has(epoch + 1)).map((epoch) => begins.get(epoch + 1) - begins.get(epoch));
  const length = lengths.length ? Math.max(...lengths) : Math.max(1, ...rows.map((row) => row.step));
  return rows.map((row) => row.epoch + Math.min(1, (row.step - begins.get(row.epoch)) / length));
}
