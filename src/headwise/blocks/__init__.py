"""The parts that models are built from: attention, other mixers, positions, norms, residuals, heads, KV cache."""
