"""The contract between a window machine and the runtime: calls, requests, state."""
