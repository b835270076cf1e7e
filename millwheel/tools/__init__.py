"""What people run and look at: the command line, pages, clients, tests, drawings, deliberate
faults."""
