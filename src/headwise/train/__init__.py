"""The training loop, with optimisers, learning-rate schedules, validation and automatic setup."""
