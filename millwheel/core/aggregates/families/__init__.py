"""The built-in aggregate functions, a file for each family with both of its forms: record by
record, and in columns."""
