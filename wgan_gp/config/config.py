"""The configuration of a run: all sections, and the rules between them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ..errors import UserError, shorten
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
    has_flag,
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
        if self.holdout and self.test_data_dir is not None:
            raise UserError(
                f"--holdout={self.holdout} and --test_data_dir={self.test_data_dir} both name "
                "held-out data",
                "omit one of them",
            )
        if self.augment == "ada" and self.ada_interval % self.steps_per_loop:
            raise UserError(
                f"--ada_interval={self.ada_interval} is not a multiple of "
                f"--steps_per_loop={self.steps_per_loop}",
                "its probability changes between loops: change one of them",
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
        self._check_compared()
        self.check_ranking()
        self.check_comparison()
        _ = self.profile_range
        self.check_replicas(self.tpu_cores or self.cpu_replicas)

    def _check_compared(self) -> None:
        """Raises UserError if --compare contains a name that is neither a setting nor a metric."""
        known = {field.name for field in dataclasses.fields(self) if has_flag(field)}
        for name in self.compared:
            if "/" not in name and name not in known:
                raise UserError(
                    f"--compare={shorten(self.compare or '')} contains {shorten(repr(name))}, "
                    "which is not a setting",
                    "give names of flags, or tags of metrics such as evaluation/fid",
                )

    @property
    def profile_range(self) -> tuple[int, int] | None:
        """The first and the last iteration to profile, or None.

        Raises:
          UserError: If --profile_steps is not a valid pair of iterations.
        """
        if self.profile_steps is None:
            return None
        match = re.fullmatch(r"([0-9]{1,10}),([0-9]{1,10})", self.profile_steps)
        first, last = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= first <= last:
            raise UserError(
                f"--profile_steps={shorten(self.profile_steps)} is not FIRST,LAST",
                "give two iterations, counted from 1, such as 200,250",
            )
        if first > self.train_steps:
            raise UserError(
                f"--profile_steps={self.profile_steps} is beyond --train_steps={self.train_steps}",
                "give iterations up to that number",
            )
        return first, last

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

    @property
    def sampling_seed(self) -> int:
        """The seed of the noise of the samples."""
        return self.seed if self.sample_seed is None else self.sample_seed

    def check_replicas(self, replicas: int) -> None:
        """Raises UserError unless the batch sizes and flags fit the number of replicas."""

        def remedy(of_training: str) -> str:
            is_trained = self.mode in SAVED_RUN_MODES
            return "use fewer devices, such as the CPU" if is_trained else of_training

        if replicas > 1 and self.jit_compile == "on" and self.runtime != "pjrt":
            raise UserError(
                f"--jit_compile=on cannot compile across {replicas} replicas", "omit it"
            )
        for name, value in (
            ("batch_size", self.batch_size),
            ("generator_batch_size", self.generator_batch),
        ):
            if value % replicas:
                below, above = value // replicas * replicas, -(-value // replicas) * replicas
                near = f"{below} or {above}" if below else f"{above}"
                raise UserError(
                    f"--{name}={value} does not divide over {replicas} replicas",
                    remedy(f"use {near}"),
                )
            parts = replicas * self.accumulate
            if value % parts:
                raise UserError(
                    f"--accumulate={self.accumulate} does not divide the {value // replicas} "
                    f"examples that each replica has of --{name}={value}",
                    remedy(f"use a multiple of {parts}"),
                )
            group = self.group_size
            if value // parts % group:
                kind = "micro-batch" if self.accumulate > 1 else "replica"
                raise UserError(
                    f"--minibatch_stddev={group} does not divide the {value // parts} examples "
                    f"that each {kind} has of --{name}={value}",
                    remedy(f"use a multiple of {parts * group}"),
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
