// Formatting of tokens and numbers.

/** Make spaces and line breaks visible. */
export const visible = (label) => (label.trim() ? label : label.replace(/\s/g, "·")).replaceAll("␊", "↵");
export const formatPercent = (share) => (share >= 0.0995 ? `${(100 * share).toFixed(1)} %` : share >= 0.00005 ? `${(100 * share).toFixed(2)} %` : share > 0 ? "< 0.01 %" : "0");

/** Fixed digits, with a true minus sign and never −0. */
export const formatFixed = (value, digits) => value.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");
