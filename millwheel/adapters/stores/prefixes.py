"""Prefixes of keys as ranges."""

from __future__ import annotations


def after(prefix: bytes) -> bytes:
    """The first key that no longer starts with ``prefix``; empty when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b""
