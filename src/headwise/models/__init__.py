"""The architectures: a file for each, with its config, forward pass, initialisation, sizes and catalogue entry."""
