"""Reaching goals in the embedding: the dynamics are a sum, so a plan is a set of actions."""
