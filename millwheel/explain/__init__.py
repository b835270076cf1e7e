"""What a pipeline is, drawn: as a tree for the terminal, as an SVG for pages. For `millwheel explain`."""
