// The sampling distribution: temperature, then top-k, then top-p (decode/sample.py).

/** `next`: the largest logits, and the log-sum of the others at each temperature. Returns the probability of each token, how
 * many can be sampled, and the probability of all tokens that were not sent. */
export function nextDistribution(next, { temperature, k, p }) {
  const top = next.logits[0] / temperature;
  const mass = next.logits.map((logit) => Math.exp(logit / temperature - top));
  const limit = k ? Math.min(k, mass.length) : mass.length;
  const others = next.others && !k ? Math.exp(next.others_logsumexp[next.temperatures.indexOf(temperature)] - top) : 0;
  const total = mass.slice(0, limit).reduce((sum, each) => sum + each, others);
  let kept = 0, sum = 0;
  while (kept < limit && (p === 1 || sum < p * total)) sum += mass[kept++];
  // If the token that crosses p was not sent, the kept probabilities add up to p.
  const beyond = p === 1 ? others : Math.max(0, p * total - sum);
  const whole = sum + beyond;
  return { probs: mass.map((each, index) => (index < kept ? each / whole : 0)), kept, others: beyond / whole };
}

/** Sample one of the sent tokens. */
export function sampleIndex(probs) {
  let left = Math.random() * probs.reduce((sum, each) => sum + each, 0);
  const index = probs.findIndex((each) => (left -= each) < 0);
  return index < 0 ? 0 : index;
}
