"""The gateway: HTTP and JSON for those who ask a running pipeline. docs/queries.md has its rules."""
