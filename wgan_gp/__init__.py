"""The training engine: networks, objective, data and writers are handed in."""
