"""The data plane: what becomes of a request, whichever front it came through."""
