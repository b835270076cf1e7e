"""HTTP: an endpoint that takes records for an injected stream by POST (docs/http.md)."""
