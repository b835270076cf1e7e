"""Real servers of others, started for tests on loopback."""
