"""The front of every listener: it bounds the cost of strangers before they are admitted."""
