"""Runs that a Python program or a notebook starts: the handle of a run, its result as a table, its code on the way."""
