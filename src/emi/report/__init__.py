"""Figures and tables from the files that runs leave behind; never from live objects."""
