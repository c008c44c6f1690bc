"""Training a model further: begin with another's weights, freeze parts of it, adapt it with low-rank maps."""
