"""From files and named corpora to examples and padded batches."""
