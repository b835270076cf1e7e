"""Times of other people and systems: texts, and numbers of a unit, in µs. Pure."""
