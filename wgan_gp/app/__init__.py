"""The composition of runs: modules here put the parts of the engine together, for each mode."""
