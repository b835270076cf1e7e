"""Metrics: their catalogue, figures, and histograms. Pure."""
