"""Order: the records that carry labels, the effects of the order of arrival, and chains."""
