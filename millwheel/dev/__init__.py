"""``millwheel dev``: a pipeline on a few records, in this process, again at each save. docs/commands.md tells how."""
