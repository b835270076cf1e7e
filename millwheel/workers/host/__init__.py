"""What surrounds the loop of a worker: machines are assembled, threads block, wires are read."""
