// One head of attention on plain arrays of rows, and numbers as people write them.

export const transposed = (a) => a[0].map((_, column) => a.map((row) => row[column]));
export const dot = (a, b) => a.reduce((sum, each, place) => sum + each * b[place], 0);
export const product = (a, b) => { const columns = transposed(b); return a.map((row) => columns.map((column) => dot(row, column))); };
export const sum = (a, b) => a.map((row, i) => row.map((each, j) => each + b[i][j]));

/** Positive weights that sum to one; what is hidden (−∞) gets 0, and a row that sees nothing gets zeros. */
export function softmax(row) {
  const largest = Math.max(...row);
  if (largest === -Infinity) return row.map(() => 0);
  const powers = row.map((score) => Math.exp(score - largest));
  const total = powers.reduce((so, each) => so + each, 0);
  return powers.map((each) => each / total);
}

/** softmax(Q Kᵀ / √d) V with everything on the way. */
export function attend({ inputs, query, key, value }, { scaled = true, causal = false } = {}) {
  const [queries, keys, values] = [query, key, value].map((weights) => product(inputs, weights));
  const divisor = scaled ? Math.sqrt(queries[0].length) : 1;
  const scores = product(queries, transposed(keys)).map((row, i) => row.map((each, j) => (causal && j > i ? -Infinity : each / divisor)));
  const weights = scores.map(softmax);
  return { queries, keys, values, scores, weights, outputs: product(weights, values) };
}

/** Whole numbers stay whole. */
export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const told = Number.isInteger(value) ? String(value) : value.toFixed(digits);
  return /^-[0.]+$/.test(told) ? told.slice(1) : told.replace("-", "−");
}

/** "1·0 + 2·3" */
export const terms = (a, b) => a.map((each, place) => `${number(each)}·${number(b[place])}`).join(" + ");
