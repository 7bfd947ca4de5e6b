"""Trains a Wasserstein GAN with gradient penalty on a Cloud TPU, GPUs or a CPU.

python train.py                                          trains on digits, on the CPU
python train.py --tpu=NAME --model_dir=gs://BUCKET/RUN   trains on digits, on a TPU
python train.py --flagfile=configs/gaussians_25.flags    runs one of the experiments
"""

from __future__ import annotations

if __name__ == "__main__":
    # These come before the other imports, which take a while.
    from wgan_gp.runtime import signals, streams

    streams.ignore_output_errors()
    signals.exit_on_interrupt()

import sys

import flags
from wgan_gp.app import program


@program.with_exit_status
def main(argv: list[str]) -> int:
    """Runs the program and returns its exit status."""
    flags.define()
    config = flags.parse(argv)
    return program.run(config, flags.given())


if __name__ == "__main__":
    sys.exit(main(sys.argv))
