"""Multi-head attention: QKV projections, scores, score mods and kernels."""
