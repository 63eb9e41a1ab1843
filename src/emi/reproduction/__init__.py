"""The paper's tables and figures: one file each, with its question, grid of runs and drawing."""
