// One attention head on plain arrays of rows, and number formatting.

export const transpose = (a) => a[0].map((_, column) => a.map((row) => row[column]));
export const dot = (a, b) => a.reduce((addMatrices, each, index) => addMatrices + each * b[index], 0);
export const multiply = (a, b) => { const columns = transpose(b); return a.map((row) => columns.map((column) => dot(row, column))); };
export const addMatrices = (a, b) => a.map((row, i) => row.map((each, j) => each + b[i][j]));

/** Softmax of a row; masked scores (−∞) get 0, and a row that is masked entirely gets zeros. */
export function softmax(row) {
  const largest = Math.max(...row);
  if (largest === -Infinity) return row.map(() => 0);
  const powers = row.map((score) => Math.exp(score - largest));
  const total = powers.reduce((so, each) => so + each, 0);
  return powers.map((each) => each / total);
}

/** softmax(Q Kᵀ / √d) V with all intermediate values. */
export function attend({ inputs, query, key, value }, { scaled = true, causal = false } = {}) {
  const [queries, keys, values] = [query, key, value].map((weights) => multiply(inputs, weights));
  const divisor = scaled ? Math.sqrt(queries[0].length) : 1;
  const scores = multiply(queries, transpose(keys)).map((row, i) => row.map((each, j) => (causal && j > i ? -Infinity : each / divisor)));
  const weights = scores.map(softmax);
  return { queries, keys, values, scores, weights, outputs: multiply(weights, values) };
}

/** Whole numbers stay whole. */
export function formatNumber(value, digits = 2) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const text = Number.isInteger(value) ? String(value) : value.toFixed(digits);
  return /^-[0.]+$/.test(text) ? text.slice(1) : text.replace("-", "−");
}

/** "1·0 + 2·3" */
export const formatTerms = (a, b) => a.map((each, index) => `${formatNumber(each)}·${formatNumber(b[index])}`).join(" + ");
