"""Machines of windows that merge: sessions, and those of your own."""
