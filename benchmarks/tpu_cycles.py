"""Compares this project's CIFAR-10 ResNet with a usual one by the TPU compiler's estimates.

  python -m benchmarks.tpu_cycles                         v3-8, v5e-8 and v5e-256
  python -m benchmarks.tpu_cycles --topologies=v5e-8 --all_forms
  python -m benchmarks.tpu_cycles --check                 fails if a step has become slower

A critic step has 64 images per core, draws its fakes and updates with Adam; a generator step has
128 images per core. An iteration is five critic steps and a generator step. Needs `make
setup-compile`; each variant takes three to six minutes on two cores. docs/compile.md explains the
estimates. `--check` compiles this project's program for v5e-8 with 8 and 16 images per core, in two
thirds of the time, and compares it with the figures of this version.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from wgan_gp import tpu
from wgan_gp.app.library import Library
from wgan_gp.app.resolve import resolve
from wgan_gp.config import Config, OptimizationSettings
from wgan_gp.tpu import topologies

from . import outcome
from .baselines import keras_fit
from .baselines.work import Work

WORK = Work("resnet", 32, 3, 128, batch_size=64, generator_batch_size=128, learning_rate=2e-4)
OURS = dataclasses.replace(WORK.config, mode="compile")
VARIANTS = {
    "ours": OURS,
    "ours, --precision=mixed_bfloat16": dataclasses.replace(OURS, precision="mixed_bfloat16"),
}


# The figures of --check: those of the program as it is, and the limit of its temporaries.
CHECKED = {
    "critic_step, cycles per image": 100_372,
    "generator_step, cycles per image": 58_452,
    "iteration, cycles": 4_954_103,
    "loop, bytes of temporaries": 22_000_000,
}
TOLERANCE = 1.01


@dataclasses.dataclass(frozen=True)
class UsualStep:
    """The Keras model of baselines/keras_fit.py with the interface of a ReplicaStep.

    Attributes:
      gan: The Keras model.
      optimization: The batch sizes over all replicas.
      critic_term_names, generator_term_names: The names of the terms.
    """

    gan: keras_fit.WGANGP
    optimization: OptimizationSettings
    critic_term_names = generator_term_names = ("loss",)
    generator_needs_real = False

    @property
    def state(self) -> Any:
        """The object that holds the networks."""
        return self.gan

    def critic_step(self, real: tf.Tensor, *_: tf.Tensor) -> dict[str, tf.Tensor]:
        """Updates the critic; see `ReplicaStep`."""
        latents = tf.random.normal([real.shape[0], WORK.latent_size])
        return {"loss": self.gan.critic_step(real, latents, tf.random.uniform([real.shape[0]]))}

    def generator_step(self, *_: tf.Tensor) -> dict[str, tf.Tensor]:
        """Updates the generator; see `ReplicaStep`."""
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        latents = tf.random.normal(
            [self.optimization.generator_batch // replicas, WORK.latent_size]
        )
        return {"loss": self.gan.generator_step(latents)}


def compile_report(config: Config, topology: topologies.Topology, *, usual: bool) -> dict[str, Any]:
    """Returns the report of --mode=compile, or that of the usual implementation."""
    from wgan_gp.app.compiling import make_program  # noqa: PLC0415
    from wgan_gp.tpu import aot  # noqa: PLC0415

    config = dataclasses.replace(
        config,
        batch_size=config.batch_size * topology.replicas,
        generator_batch_size=config.generator_batch * topology.replicas,
    )
    library = Library()
    config, dataset = resolve(config, library.models)
    program = make_program(config, dataset, library, topology)
    if usual:
        with program.strategy.scope():
            gan = keras_fit.WGANGP(WORK)
        step: Any = UsualStep(gan, config)
        program = dataclasses.replace(program, step=step)
    with tempfile.TemporaryDirectory() as directory:
        return aot.compile_slice(
            program,
            topology,
            penalty_interval=config.penalty_interval,
            directory=directory,
            log=lambda line: None,
        )


def make_row(topology: str, variant: str, report: dict[str, Any]) -> dict[str, Any]:
    """Returns the row of a report in the table."""
    critic, generator = report["programs"]["critic_step"], report["programs"]["generator_step"]
    return {
        "": f"{topology}, {variant}",
        "critic, cycles per image": critic["estimated_cycles"] / report["per_replica_batch"],
        "generator": generator["estimated_cycles"] / report["per_replica_generator_batch"],
        "matrix units": f"{critic['matrix_unit_utilization']:.0%}, "
        f"{generator['matrix_unit_utilization']:.0%}",
        "temporaries, MB": report["loop"]["temp_bytes"] / 1e6,
        "gradient all-reduces": f"{critic['gradient_all_reduce_count']}, "
        f"{generator['gradient_all_reduce_count']}",
        "cycles per iteration, M": report["iteration"]["estimated_cycles"] / 1e6,
    }


def check() -> int:
    """Prints the figures of CHECKED, and returns 1 if one is larger than it was, else 0."""
    config = dataclasses.replace(OURS, batch_size=8, generator_batch_size=16)
    report = compile_report(config, topologies.find("v5e-8"), usual=False)
    critic, generator = (report["programs"][f"{name}_step"] for name in ("critic", "generator"))
    found = (
        critic["cycles_per_example"],
        generator["cycles_per_example"],
        report["iteration"]["estimated_cycles"],
        report["loop"]["temp_bytes"],
    )
    rows = [
        {"": name, "found": value, "before": before, "ratio": value / before}
        for (name, before), value in zip(CHECKED.items(), found, strict=True)
    ]
    print(outcome.table(rows))
    return int(any(row["ratio"] >= TOLERANCE for row in rows))


def main() -> int:
    """Prints each row when it is known, and then the whole table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topologies", default="v3-8,v5e-8,v5e-256", help="TPU slices")
    parser.add_argument(
        "--all_forms", action="store_true", help="compile all variants of this project"
    )
    parser.add_argument("--check", action="store_true", help="compare with recorded figures")
    arguments = parser.parse_args()
    tpu.check_installed()
    if arguments.check:
        return check()
    rows: list[dict[str, Any]] = []
    for topology in map(topologies.find, arguments.topologies.split(",")):
        usual = make_row(
            topology.name, "as usually written", compile_report(OURS, topology, usual=True)
        )
        rows.append(usual)
        print(outcome.table(rows[-1:]), flush=True)
        for variant, config in VARIANTS.items() if arguments.all_forms else [("ours", OURS)]:
            row = make_row(topology.name, variant, compile_report(config, topology, usual=False))
            share = row["cycles per iteration, M"] / usual["cycles per iteration, M"]
            rows.append({**row, "relative to usual": share})
            print(outcome.table(rows[-1:]), flush=True)
    print(outcome.table(rows))
    outcome.save("tpu_cycles", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
