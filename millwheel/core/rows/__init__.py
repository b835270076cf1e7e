"""Records of a key in their order: the first, the last, those before each, and those that wait."""
