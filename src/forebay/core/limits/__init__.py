"""Limit laws: each finds how many requests one endpoint should have in flight."""
