"""Speed beside installed peers: one process an engine, repeats in turn, medians and ratios."""
