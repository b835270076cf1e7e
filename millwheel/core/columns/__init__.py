"""The columnar form of records, windows and aggregations."""
