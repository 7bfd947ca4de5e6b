"""The devices, processes, signals and random numbers of a run."""
