"""What a pipeline with other settings makes of the state that it finds: free, at rest, refused."""
