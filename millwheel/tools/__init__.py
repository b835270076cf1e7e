"""The tools of users: the command line, pages, clients, tests, drawings, deliberate faults."""
