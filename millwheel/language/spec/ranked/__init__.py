"""How rows in order are written: ``top:``, ``deduplicate:`` with ``keep``, and ``table:``."""
