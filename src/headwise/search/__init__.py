"""Hyperparameter search over the keys of an experiment, with Optuna: ranges, trials, importances and the winner."""
