"""The front of every listener: what a stranger may cost before it has shown that it may enter."""
