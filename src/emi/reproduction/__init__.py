"""The paper's tables and figures: one file each, with its question, its grid and its drawing."""
