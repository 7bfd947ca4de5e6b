"""Programs that measure speed, memory, sample quality and reliability."""

from wgan_gp.app.program import prepare_environment

prepare_environment(None)  # for this process and, through the environment, for all that it starts
