"""Text data: files and named corpora -> tokenised examples -> padded batches."""
