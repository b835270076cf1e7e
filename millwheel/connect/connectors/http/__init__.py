"""HTTP: an endpoint that accepts records for an injected stream by POST (docs/http.md)."""
