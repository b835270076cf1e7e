"""Computations that keep the records of each key in order."""
