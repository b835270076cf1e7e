"""Windows, panes and triggers, and the contract between a window machine and the runtime."""
