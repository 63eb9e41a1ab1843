"""Training: the settings of a run, the presets, and Algorithm 1."""
