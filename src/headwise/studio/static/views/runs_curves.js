// Rows of metrics, updated incrementally, and the curves made of them.
import { post } from "../api.js";

const AXES = new Set(["step", "minutes", "epoch"]);

export class Curves {
  constructor() { this.known = new Map(); }

  rows(name) { return this.known.get(name) ?? []; }

  /** Fetch only new rows: the request says how many rows are known and the step of the last. */
  async follow(names) {
    if (!names.length) return;
    const requests = names.map((run) => ({ run, since: this.rows(run).length, step: this.rows(run).at(-1)?.step ?? 0 }));
    for (const { run, since, rows } of await post("/api/runs/rows", { runs: requests })) {
      this.known.set(run, [...this.rows(run).slice(0, since), ...rows]);
    }
  }

  /** The metrics that can be drawn: the loss, then validation scores, then the rest. */
  names(runs) {
    const found = new Set(runs.flatMap((run) => this.rows(run).flatMap((row) => Object.keys(row))).filter((name) => !AXES.has(name)));
    const rank = (name) => (name === "loss" ? 0 : name.startsWith("valid ") ? 1 : 2);
    return [...found].sort((a, b) => rank(a) - rank(b));
  }

  last(run, what) { return this.rows(run).findLast((row) => Number.isFinite(row[what]))?.[what] ?? null; }

  series(run, what, over, smooth) {
    const rows = this.rows(run), at = over === "epoch" ? epochs(rows) : rows.map((row) => row[over]);
    const raw = rows.map((row, index) => [at[index], row[what]]).filter(([, value]) => Number.isFinite(value));
    return smooth ? { points: smoothPoints(raw, smooth), faint: raw } : { points: raw };
  }
}

/** Exponential moving average with bias correction, as for Adam's moments. */
export function smoothPoints(points, weight) {
  let mean = 0;
  return points.map(([at, value], index) => {
    mean = weight * mean + (1 - weight) * value;
    return [at, mean / (1 - weight ** (index + 1))];
  });
}

/** Fractional epochs: rows count whole epochs, and steps interpolate between them. */
function epochs(rows) {
  const firstSteps = new Map();
  for (const row of rows) if (!firstSteps.has(row.epoch)) firstSteps.set(row.epoch, row.step);
  const lengths = [...firstSteps.keys()].filter((epoch) => firstSteps.has(epoch + 1)).map((epoch) => firstSteps.get(epoch + 1) - firstSteps.get(epoch));
  const length = lengths.length ? Math.max(...lengths) : Math.max(1, ...rows.map((row) => row.step));
  return rows.map((row) => row.epoch + Math.min(1, (row.step - firstSteps.get(row.epoch)) / length));
}
