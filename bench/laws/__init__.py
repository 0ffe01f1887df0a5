"""Limit laws that others use, written for the comparison; none is shipped."""
