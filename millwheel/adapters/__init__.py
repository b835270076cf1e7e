"""Adapters: one outside system per file, behind the ports; and helpers for processes, secrets and
terminals."""
