"""Records that wait for the watermark in columns, and what is made of them then."""
