"""``millwheel dev``: runs a pipeline on a few records in this process, again at each save. See
docs/commands.md."""
