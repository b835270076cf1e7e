"""Decimals: whole numbers of a unit, exact in sums. Pure."""
