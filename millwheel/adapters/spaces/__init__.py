"""Storage below a root: folders, S3, and the notes that processes keep there."""
