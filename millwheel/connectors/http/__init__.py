"""HTTP: a door by which records are posted to an injected stream (docs/http.md)."""
