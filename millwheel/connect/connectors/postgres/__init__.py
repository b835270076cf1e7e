"""PostgreSQL: tables as a sink, each row once, and tables and queries as a source."""
