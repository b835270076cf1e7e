"""Shared storage, of roots and of data: folders, and the buckets of object stores. Of all processes
that create a free name, exactly one succeeds."""
