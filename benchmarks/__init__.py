"""Programs that measure speed, memory, sample quality and reliability."""

from wgan_gp import onednn

onednn.prefer()  # in this process and, through the environment, in all that it starts
