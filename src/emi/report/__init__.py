"""Figures, tables and an HTML page of runs, made from their files alone.

`load` reads runs, `groups` puts seeds together, `summary` computes the numbers of a group; tables,
curves and the page show them. Values to compare with are handed in as `reference.Reference`.
"""
