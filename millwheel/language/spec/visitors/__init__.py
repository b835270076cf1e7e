"""Dictionaries, and unique visitors: the parts of a computation that give values numbers and count
them."""
