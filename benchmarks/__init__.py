"""Programs that measure and print figures; never run as tests."""

from wgan_gp import onednn

onednn.enable()  # here and, through the environment, in every process that a program starts
