"""Runs: the run directory, what is written to it and read from it, and the progress display."""
