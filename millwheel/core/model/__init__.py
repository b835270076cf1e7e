"""Values that everything else is made of: keys, ranges, records, times, timers, watermarks."""
