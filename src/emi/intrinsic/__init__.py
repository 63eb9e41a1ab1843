"""Intrinsic rewards: one method per file, one contract, one table.

This package imports `emi.batch`, `emi.nets` and what these need, and no trainer: a method can be
used in any of them.
"""
