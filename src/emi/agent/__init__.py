"""TRPO: policies, value functions, rollouts, advantages and the trust-region step."""
