"""Generated from ``proto/``: never edited by hand."""
