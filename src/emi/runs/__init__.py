"""Runs: the run directory and everything that is written to it, read from it or shown of it."""
