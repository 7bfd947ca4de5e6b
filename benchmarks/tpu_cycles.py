"""What the TPU's compiler thinks of the CIFAR-10 ResNet, as usually written and as it is here.

  python -m benchmarks.tpu_cycles                         v3-8, v5e-8 and v5e-256
  python -m benchmarks.tpu_cycles --topologies=v5e-8 --all_forms

64 images a core in a critic step, which draws the fakes and updates by Adam, 128 in a generator
step; an iteration is five of the one and one of the other. Needs `make setup-compile`; each form
takes three to six minutes on two cores. The figures are estimates, see docs/compile.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import types
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

import train
from wgan_gp import tpu
from wgan_gp.config import Config
from wgan_gp.tpu import topologies

from . import outcome
from .contenders import keras_fit
from .contenders.work import Work

WORK = Work("resnet", 32, 3, 128, batch_size=64, generator_batch_size=128, learning_rate=2e-4)
OURS = dataclasses.replace(WORK.config, mode="compile")
FORMS = {
    "ours": OURS,
    "ours, --fused_resampling=off": dataclasses.replace(OURS, fused_resampling="off"),
    "ours, --precision=mixed_bfloat16": dataclasses.replace(OURS, precision="mixed_bfloat16"),
}


@dataclasses.dataclass(frozen=True)
class UsualStep:
    """The Keras model of contenders/keras_fit.py, in the outward form of a ReplicaStep."""

    gan: keras_fit.WGANGP
    batch_size: int
    generator_batch_size: int
    objective = types.SimpleNamespace(critic_term_names=("loss",), generator_term_names=("loss",))

    @property
    def state(self) -> Any:
        """The networks."""
        return self.gan

    def critic_step(self, real: tf.Tensor, *_: tf.Tensor) -> dict[str, tf.Tensor]:
        """See ReplicaStep."""
        latents = tf.random.normal([real.shape[0], WORK.latent_size])
        return {"loss": self.gan.critic_step(real, latents, tf.random.uniform([real.shape[0]]))}

    def generator_step(self, *_: tf.Tensor) -> dict[str, tf.Tensor]:
        """See ReplicaStep."""
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        latents = tf.random.normal([self.generator_batch_size // replicas, WORK.latent_size])
        return {"loss": self.gan.generator_step(latents)}


def report_of(config: Config, topology: topologies.Topology, *, usual: bool) -> dict[str, Any]:
    """What --mode=compile would write."""
    from wgan_gp.tpu import aot  # noqa: PLC0415
    from wgan_gp.tpu.slice_strategy import SliceStrategy  # noqa: PLC0415

    config = dataclasses.replace(
        config,
        batch_size=config.batch_size * topology.replicas,
        generator_batch_size=config.generator_batch * topology.replicas,
    )
    strategy = SliceStrategy(topology.replicas)
    if usual:
        with strategy.scope():
            gan = keras_fit.WGANGP(WORK)
        step: Any = UsualStep(gan, config.batch_size, config.generator_batch)
    else:
        step = train.make_step(config, train.make_state(config, strategy))
    with tempfile.TemporaryDirectory() as directory:
        return aot.compile_slice(
            config,
            step,
            strategy,
            topology,
            example_shape=train.find_dataset(config).spec.example_shape,
            directory=directory,
            say=lambda line: None,
        )


def row_of(topology: str, form: str, report: dict[str, Any]) -> dict[str, Any]:
    """What of a report goes into the table."""
    critic, generator = report["programs"]["critic_step"], report["programs"]["generator_step"]
    return {
        "": f"{topology}, {form}",
        "critic, cycles an image": critic["estimated_cycles"] / report["per_replica_batch"],
        "generator": generator["estimated_cycles"] / report["per_replica_generator_batch"],
        "matrix units": f"{critic['matrix_unit_utilisation']:.0%}, "
        f"{generator['matrix_unit_utilisation']:.0%}",
        "temporaries, MB": f"{critic['temp_bytes'] / 1e6:.0f}, {generator['temp_bytes'] / 1e6:.0f}",
        "gradient all-reduces": f"{critic['gradient_all_reduce_count']}, "
        f"{generator['gradient_all_reduce_count']}",
        "iteration, M cycles": (
            WORK.n_critic * critic["estimated_cycles"] + generator["estimated_cycles"]
        )
        / 1e6,
    }


def main() -> None:
    """Prints the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topologies", default="v3-8,v5e-8,v5e-256")
    parser.add_argument("--all_forms", action="store_true", help="also those that ours has beside")
    given = parser.parse_args()
    tpu.check_installed()
    rows: list[dict[str, Any]] = []
    for topology in map(topologies.find, given.topologies.split(",")):
        usual = row_of(topology.name, "as usually written", report_of(OURS, topology, usual=True))
        rows.append(usual)
        print(outcome.table(rows[-1:]), flush=True)
        for form, config in FORMS.items() if given.all_forms else [("ours", OURS)]:
            row = row_of(topology.name, form, report_of(config, topology, usual=False))
            share = row["iteration, M cycles"] / usual["iteration, M cycles"]
            rows.append({**row, "of the usual": share})
            print(outcome.table(rows[-1:]), flush=True)
    print(outcome.table(rows))
    outcome.save("tpu_cycles", rows)


if __name__ == "__main__":
    main()
