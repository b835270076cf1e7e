"""The gateway: queries of a running pipeline over HTTP and JSON. docs/queries.md has its rules."""
