"""Order: which records carry labels, and where the order of arrival decides."""
