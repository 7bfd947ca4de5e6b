"""Programs that search for faults: kills of a run, and damage to its directory."""

from wgan_gp.app.program import prepare_environment

prepare_environment(None)  # for this process and, through the environment, for all that it starts
