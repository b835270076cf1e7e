"""Columns of Arrow, and Parquet files, as records."""
