"""Sweeps: environments × methods × seeds, on one machine, a Ray cluster or Slurm."""
