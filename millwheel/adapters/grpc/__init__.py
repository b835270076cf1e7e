"""All gRPC code: channels, security, clients."""
