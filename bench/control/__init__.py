"""Limit laws side by side on simulated engines: scenarios with bands, the oracle, the figures."""
