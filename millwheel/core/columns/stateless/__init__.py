"""Steps and branches over columns: each record becomes others by expressions alone."""
