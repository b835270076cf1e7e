"""Rows as PostgreSQL reads them, and the statements that write them."""
