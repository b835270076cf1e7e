"""The search over values: the same pipeline and input in columns and in rows, byte for byte.

    .venv/bin/python -m tests.search.forms --seed 1 --runs 200

It draws what the search over pipelines does not: nulls, extreme numbers, signed zeros, odd texts,
far times, names of fields as columns have them inside, time zones, and second stages over results
that may be null.
"""
