"""Where a root lies: folders, S3, and the notes that processes leave there."""
