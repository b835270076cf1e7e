"""The functions of expressions, a file for each family: text, patterns, numbers, nulls, times."""
