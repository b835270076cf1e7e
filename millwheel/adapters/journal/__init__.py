"""Journals on files and objects, in the append form and the create form."""
