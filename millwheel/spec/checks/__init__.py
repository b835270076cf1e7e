"""What must hold between the parts, and in the code that they name."""
