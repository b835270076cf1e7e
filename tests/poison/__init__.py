"""The poison sweep: nasty values, exceptions and objects through every place where a pipeline takes
one.

``python -m tests.poison`` runs every value alone in every place and prints the matrix; the tests
run them together.
"""
