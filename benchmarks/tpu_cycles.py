"""What the TPU's compiler thinks of the CIFAR-10 ResNet in its forms; needs `make setup-compile`.

  python -m benchmarks.tpu_cycles                 a v5e-8, 64 images a core and 128
  python -m benchmarks.tpu_cycles --topology=v3-8

Each form takes three to six minutes on two cores. The figures are estimates, see docs/compile.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import train
from wgan_gp import tpu
from wgan_gp.config import Config
from wgan_gp.data import registry as datasets
from wgan_gp.tpu import topologies

OURS = Config(
    mode="compile",
    dataset="cifar10",
    model="resnet",
    model_width=128,
    latent_size=128,
    critic_learning_rate=2e-4,
    generator_learning_rate=2e-4,
)
UNFUSED = dataclasses.replace(OURS, fused_resampling="off")
# As usually written, or not; and the run.
FORMS = {
    "as usually written": (True, UNFUSED),
    "ours, --fused_resampling=off": (False, UNFUSED),
    "ours": (False, OURS),
    "ours, --precision=mixed_bfloat16": (
        False,
        dataclasses.replace(OURS, precision="mixed_bfloat16"),
    ),
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Compiles the CIFAR-10 ResNet in its forms.")
    parser.add_argument("--topology", default="v5e-8")
    topology = topologies.find(parser.parse_args().topology)
    tpu.check_installed()
    from wgan_gp.tpu import aot  # noqa: PLC0415
    from wgan_gp.tpu.slice_strategy import SliceStrategy  # noqa: PLC0415

    from .plain import make_plain_step  # noqa: PLC0415

    print(f"{topology.name}: cycles an image, matrix units busy, temporaries of a core")
    for title, (plain, settings) in FORMS.items():
        config = dataclasses.replace(
            settings,
            batch_size=64 * topology.replicas,
            generator_batch_size=128 * topology.replicas,
        )
        strategy = SliceStrategy(topology.replicas)
        step = (
            make_plain_step(config, strategy)
            if plain
            else train.make_step(config, train.make_state(config, strategy))
        )
        with tempfile.TemporaryDirectory() as directory:
            report = aot.compile_slice(
                config,
                step,
                strategy,
                topology,
                example_shape=datasets.example_shape(config),
                directory=directory,
                say=lambda line: None,
            )
        programs = report["programs"]
        figures = [
            f"{name} {program['estimated_cycles'] / images:,.0f}, "
            f"{program['matrix_unit_utilisation']:.0%}, {program['temp_bytes'] / 1e6:.0f} MB"
            for (name, program), images in zip(programs.items(), (64, 128), strict=True)
        ]
        iteration = 5 * programs["critic_step"]["estimated_cycles"]
        iteration += programs["generator_step"]["estimated_cycles"]
        print(f"{title:34} {'; '.join(figures)}; iteration {iteration / 1e6:.1f} M", flush=True)


if __name__ == "__main__":
    main()
