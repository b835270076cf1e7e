"""External sinks: what sinks for other systems have in common. docs/connectors.md has their protocol."""
