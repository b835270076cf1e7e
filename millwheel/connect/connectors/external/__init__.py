"""External sinks: the common part of sinks for other systems. docs/connectors.md has their
protocol."""
