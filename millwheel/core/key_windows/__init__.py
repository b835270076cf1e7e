"""The machine of key windows: a sliding result that is emitted where it changes."""
