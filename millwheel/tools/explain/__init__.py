"""Drawings of a pipeline for ``millwheel explain``: a tree for the terminal, an SVG for pages."""
