"""Everything that speaks gRPC: channels, security, clients."""
