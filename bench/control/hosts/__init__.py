"""Hosts that come, go and fail, and peers on one GPU, beside the best static limits."""
