"""Adapters: one outside system per file, behind the ports."""
