"""The files of a run directory: paths, atomic writes, JSON, the lock."""
