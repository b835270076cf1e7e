"""Pipelines written in Python, and the handle of a run that a program or a notebook starts."""
