"""Runs that a Python program or a notebook starts: the handle of a run, its results as tables, and
the packing of its code."""
