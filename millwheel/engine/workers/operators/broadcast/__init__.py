"""Tables that each worker holds whole, and the enrichment with them, which keeps no state."""
