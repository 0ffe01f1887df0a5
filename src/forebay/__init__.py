"""Forebay: admission control in front of your own GPUs."""
