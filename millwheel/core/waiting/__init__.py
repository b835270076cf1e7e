"""Records that wait for the watermark in columns: their segments, the order in which they come, and
the versions that some of them get."""
