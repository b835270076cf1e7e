"""The pure core: values and state machines without I/O, clocks, threads or settings."""
