// From logits to what is drawn from: temperature first, then top-k, then top-p (decode/sample.py).

/** `next`: the largest logits, and for each temperature the log-sum of the others. P of each, how many may be drawn, and P of
 * all that were not sent. */
export function distribution(next, { temperature, k, p }) {
  const top = next.logits[0] / temperature;
  const mass = next.logits.map((logit) => Math.exp(logit / temperature - top));
  const limit = k ? Math.min(k, mass.length) : mass.length;
  const others = next.others && !k ? Math.exp(next.rest[next.temperatures.indexOf(temperature)] - top) : 0;
  const total = mass.slice(0, limit).reduce((sum, each) => sum + each, others);
  let kept = 0, sum = 0;
  while (kept < limit && (p === 1 || sum < p * total)) sum += mass[kept++];
  // Where the crossing token was not sent, what is kept adds up to p but for that token.
  const beyond = p === 1 ? others : Math.max(0, p * total - sum);
  const whole = sum + beyond;
  return { probs: mass.map((each, place) => (place < kept ? each / whole : 0)), kept, others: beyond / whole };
}

/** One of the sent tokens, at random. */
export function drawn(probs) {
  let left = Math.random() * probs.reduce((sum, each) => sum + each, 0);
  const place = probs.findIndex((each) => (left -= each) < 0);
  return place < 0 ? 0 : place;
}
