"""Object stores that hold data: S3, Google Cloud Storage and Azure, by their conditional writes."""
