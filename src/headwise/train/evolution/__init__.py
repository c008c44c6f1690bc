"""Evolution strategies: training without gradients, by populations of parameter vectors."""
