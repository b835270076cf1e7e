"""Coordination over ZooKeeper, and a server of our own."""
