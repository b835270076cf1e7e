"""The small language of ``where:`` and of aggregated values."""
