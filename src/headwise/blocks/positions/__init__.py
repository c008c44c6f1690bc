"""Position embeddings: absolute, rotary, relative, ALiBi, and those of grids and trees."""
