"""The configuration of a run: all sections, and the rules between them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ..errors import UserError
from .augmentation import AugmentationSettings
from .data import DataSettings
from .devices import DeviceSettings
from .networks import NetworkSettings
from .objective import ObjectiveSettings
from .optimization import OptimizationSettings
from .output import EvaluationSettings, OutputSettings, SamplingSettings
from .settings import (
    SAVED_RUN_MODES,
    Section,
    check_requirements,
    recorded,
    setting,
    settings_with,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModeSettings(Section):
    """The mode of the program, and an objective of your own."""

    mode: str = setting(
        "train",
        "train; evaluate, sample or export, which use the run in --model_dir; compile, "
        "which compiles the run for a TPU slice without a TPU (docs/compile.md explains the "
        "report); or doctor, which checks the installation, --tpu and the buckets (docs/tpu.md).",
        choices=("train", *SAVED_RUN_MODES, "compile", "doctor"),
        kind="output",
        common=True,
    )
    compile_topology: str = setting(
        "v5e-8",
        "TPU slice to compile for: v2-8, v3-8, v4-8, v5e-8, v5p-8, v6e-8, tpu7x-8 and other "
        "sizes, or a layout such as v5e:2x4.",
        kind="output",
        applies={"mode": ("compile",)},
    )
    objective: str | None = setting(
        None,
        "Objective of your own, FILE.py:NAME or MODULE:NAME, in place of the flags of the losses "
        "(docs/user_code.md).",
        kind="training",
        of_run=False,  # only training needs it
        user_code=True,
    )


# Fields are collected from the last base class to the first, so config.json begins with the data.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(
    ModeSettings,
    SamplingSettings,
    EvaluationSettings,
    OutputSettings,
    DeviceSettings,
    OptimizationSettings,
    AugmentationSettings,
    ObjectiveSettings,
    NetworkSettings,
    DataSettings,
):
    """All settings of one run.

    A function that needs the settings of one section takes that section; a Config is one.

    Attributes:
      model_sha256, generator_model_sha256, dataset_sha256, objective_sha256: The hash of the file
        that the setting names, in hexadecimal. None if it names no file.

    Raises:
      UserError: If a value is invalid or two values contradict each other.
    """

    model_sha256: str | None = recorded()
    generator_model_sha256: str | None = recorded()
    dataset_sha256: str | None = recorded()
    objective_sha256: str | None = recorded()

    def __post_init__(self):
        super().__post_init__()
        check_requirements(self)
        if self.adversarial_loss == "relativistic" and self.generator_batch != self.batch_size:
            raise UserError(
                f"--generator_batch_size={self.generator_batch} is not --batch_size="
                f"{self.batch_size}, but --adversarial_loss={self.adversarial_loss} pairs each "
                "sample with a real example",
                "omit --generator_batch_size",
            )
        if self.last_step > self.train_steps:
            raise UserError(
                f"--stop_step={self.stop_step} is beyond --train_steps={self.train_steps}",
                "give an iteration up to that number",
            )
        if self.checkpoint != "latest" and self.mode == "train" and self.restore_from is None:
            raise UserError(
                f"--checkpoint={self.checkpoint} would not continue this run, which goes on from "
                "its newest checkpoint",
                "start a new run from it, with --restore_from=RUN and another --model_dir",
            )
        self.check_optimizer()
        self.check_ranking()
        self.check_comparison()
        self.check_replicas(self.tpu_cores or self.cpu_replicas)

    @property
    def run_directory(self) -> str:
        """The path of the run directory."""
        if self.model_dir is not None:
            return self.model_dir
        file, _, name = self.dataset.partition(":")
        if file.endswith(".py"):
            stem = file.rpartition("/")[2].removesuffix(".py")
            return f"runs/{stem}-{name}" if name else f"runs/{stem}"
        return f"runs/{self.dataset}"

    def check_replicas(self, replicas: int) -> None:
        """Raises UserError unless the batch sizes and flags fit the number of replicas."""
        if replicas > 1 and self.jit_compile == "on" and self.runtime != "pjrt":
            raise UserError(
                f"--jit_compile=on cannot compile across {replicas} replicas", "omit it"
            )
        parts = {
            "replicas": replicas,
            "micro-batches of --accumulate": self.accumulate,
            "examples of --minibatch_stddev": self.group_size,
        }
        least = math.prod(parts.values())
        sizes = {"batch_size": self.batch_size, "generator_batch_size": self.generator_batch}
        for name, value in sizes.items():
            if value % least:
                over = " x ".join(f"{count} {part}" for part, count in parts.items() if count > 1)
                below, above = value // least * least, -(-value // least) * least
                use = f"use {below} or {above}" if below else f"use {above}"
                raise UserError(
                    f"--{name}={value} does not divide over {over}",
                    "use fewer devices, such as the CPU" if self.mode in SAVED_RUN_MODES else use,
                )

    @property
    def of_run(self) -> dict[str, Any]:
        """The settings that describe a saved run in the modes that use it; see `settings.Kind`."""
        found = {}
        for field in dataclasses.fields(self):
            value, permitted = getattr(self, field.name), field.metadata["of_run"]
            if permitted is True or (permitted and value in permitted):
                found[field.name] = value
        return found

    def differences(self, saved: Config) -> dict[str, Any]:
        """Returns the values of a saved configuration that this one would have to keep, by name.

        It is empty if the run can be resumed. Settings declared with `resume` may differ, and so
        may the path of a file with the same content. train_steps and schedule_steps may differ if
        the schedules are constant or have the same length.
        """
        same_schedule = self._scheduled_steps == saved._scheduled_steps
        found = {}
        for field in dataclasses.fields(self):
            name, old = field.name, getattr(saved, field.name)
            may_differ = field.metadata["resume"] or self._names_same_code(saved, name)
            if name in ("train_steps", "schedule_steps"):
                may_differ = same_schedule
            if not may_differ and old != getattr(self, name):
                found[name] = old
        return found

    @property
    def _scheduled_steps(self) -> int | None:
        """The number of iterations that the schedules depend on; None if they are constant."""
        return None if self.learning_rate_schedule == "constant" else self.schedule_length

    def _names_same_code(self, saved: Config, name: str) -> bool:
        """Returns True if a setting names the same object of a file with the same content."""
        digest = getattr(self, f"{name}_sha256", None)
        old, new = (str(getattr(each, name)).partition(":")[2] for each in (saved, self))
        return digest is not None and digest == getattr(saved, f"{name}_sha256") and old == new

    def to_dict(self) -> dict[str, Any]:
        """Returns all settings by name, the content of config.json."""
        return dataclasses.asdict(self)


# The settings that may name code of the user; see app/user_code/loading.py.
CODE_SETTINGS = tuple(settings_with("user_code", Config))
