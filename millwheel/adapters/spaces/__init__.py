"""Shared storage, of roots and of data: folders, and the buckets of object stores. Whoever creates
a name that was free is alone in having done so."""
