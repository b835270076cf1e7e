"""Windows and panes: which stretches of event time there are, and what is emitted for them."""
