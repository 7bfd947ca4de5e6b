"""Programs that measure speed, memory and sample quality."""

from wgan_gp.app.program import prepare_environment

prepare_environment(None)  # for this process and, through the environment, for all that it starts
