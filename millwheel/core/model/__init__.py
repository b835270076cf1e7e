"""The values that all other parts use: keys, ranges, records, times, timers, watermarks."""
