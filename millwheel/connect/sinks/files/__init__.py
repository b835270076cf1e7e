"""Files as sinks: committables become visible files, whole and final."""
