"""How rows in order are written: ``top:``, and ``deduplicate:`` with ``keep``."""
