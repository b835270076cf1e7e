"""Windows and panes: stretches of event time, and the results emitted for them."""
