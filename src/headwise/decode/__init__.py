"""Search for outputs: greedy, sampled or by beam, over any model with `start` and `step`."""
