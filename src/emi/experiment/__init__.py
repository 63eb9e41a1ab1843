"""Experiments: configuration, the training loop, and what is kept of a run."""
