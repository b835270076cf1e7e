"""Commands for people who write a pipeline: ``dev``, ``schema``."""
