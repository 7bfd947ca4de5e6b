"""The training engine, which receives networks, objective, data and writers as arguments."""
