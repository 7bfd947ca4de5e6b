"""Programs that measure speed, memory, sample quality and reliability."""

from wgan_gp.runtime import onednn

onednn.enable()  # in this process and, through the environment, in all that it starts
