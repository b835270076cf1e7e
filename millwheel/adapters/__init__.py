"""Adapters: one outside system per file, behind the ports; and what processes, secrets and
terminals need."""
