// Tokens and numbers as one reads them.

/** Blanks and ends of lines as something one can see. */
export const shown = (label) => (label.trim() ? label : label.replace(/\s/g, "·")).replaceAll("␊", "↵");
export const percent = (share) => (share >= 0.0995 ? `${(100 * share).toFixed(1)} %` : share >= 0.00005 ? `${(100 * share).toFixed(2)} %` : share > 0 ? "< 0.01 %" : "0");

/** With a minus sign that is one, and none before a zero. */
export const fixed = (value, digits) => value.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");
