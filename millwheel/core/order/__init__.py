"""Order: which records carry labels, where the order of arrival decides, and what is chained."""
