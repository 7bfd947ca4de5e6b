"""The settings of what training writes, and of the modes that use a saved run."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any

from ..errors import UserError, printable, shorten
from .ranking import RANKING, listed
from .settings import SAVED_RUN_MODES, Section, setting

# The values of --feature_extractor that are not paths; the last selects the metrics of arrays.
EXTRACTORS = ("classifier", "inception", "none")


def _parse_checkpoint(name: str, value: Any) -> str:
    """Returns the value of --checkpoint: latest, best, or a number without leading zeros."""
    text = str(value).strip()
    if re.fullmatch(r"[0-9]{1,10}", text, re.ASCII):
        return str(int(text))
    if text not in ("latest", "best"):
        raise UserError(
            f"--{name}={printable(shorten(text))} is unknown",
            "use latest, best, or a number of iterations",
        )
    return text


_setting = functools.partial(setting, kind="output")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings(Section):
    """The run directory, and the intervals of its files.

    An interval is a number of iterations; 0 means only at the end of training.
    """

    model_dir: str | None = setting(
        None,
        "Run directory, any path that TensorFlow can open (local, gs://). Default: runs/<dataset>.",
        path=True,
        kind="place",
        common=True,
    )
    summary_interval: int = _setting(
        100,
        "Iterations between summaries. 0: only at the end.",
        minimum=0,
    )
    sample_interval: int = _setting(
        500,
        "Iterations between sample grids. 0: only at the end.",
        minimum=0,
    )
    checkpoint_interval: int = _setting(
        500,
        "Iterations between checkpoints. 0: only at the end.",
        minimum=0,
    )
    keep_checkpoints: int = _setting(
        5,
        "Number of newest checkpoints to keep.",
        minimum=1,
    )
    keep_best: str | None = _setting(
        None,
        "Metric of the evaluations, such as fid, whose best checkpoint is also kept, in "
        "checkpoints/best (docs/reliability.md). Needs --evaluate_interval. Default: none.",
        requires={"evaluate_interval": True},
    )
    stop_early: str | None = _setting(
        None,
        "End training after a number of evaluations without improvement, as METRIC:NUMBER, such as "
        "fid:5. Needs --evaluate_interval. Default: --train_steps iterations.",
        requires={"evaluate_interval": True},
    )
    writers: str | None = setting(
        None,
        "Further writers of curves and images, separated by commas: wandb, mlflow, or your own, "
        "FILE.py:NAME or MODULE:NAME (docs/writers.md).",
        kind="place",
    )
    hooks: str | None = setting(
        None,
        "Actions of your own between loops, FILE.py:NAME or MODULE:NAME, separated by commas "
        "(docs/python.md).",
        kind="place",
    )
    restore_from: str | None = setting(
        None,
        "Start a new run from another run's checkpoint: its run directory, or one of its "
        "checkpoints/ckpt-N. Once the new run has a checkpoint, it continues from its own.",
        path=True,
        kind="training",
        per_process=False,
    )
    restore: str | None = setting(
        None,
        "Take only weights that fit from --restore_from, a run with other classes, sizes or data: "
        "generator, critic or both. Training starts at iteration 0 with new optimizers "
        "(docs/reliability.md). Default: continue that run, which must have the same networks.",
        choices=("generator", "critic", "both"),
        kind="training",
        requires={"restore_from": True, "mode": ("train", "compile")},
        resume=True,
        of_run=False,
    )
    evaluate_interval: int = _setting(
        0,
        "Iterations between evaluations during training. 0: no evaluations.",
        minimum=0,
        common=True,
    )
    profile: bool = setting(
        False,
        "Profile the third loop for TensorBoard, or the last one of a shorter run.",
        kind="place",
    )

    @property
    def patience(self) -> tuple[str, int] | None:
        """The metric and the number of evaluations of --stop_early, or None.

        Raises:
          UserError: If the value is not METRIC:NUMBER.
        """
        if self.stop_early is None:
            return None
        metric, _, count = self.stop_early.partition(":")
        if not re.fullmatch(r"[1-9][0-9]{0,8}", count, re.ASCII):
            raise UserError(
                f"--stop_early={shorten(self.stop_early)} is not METRIC:NUMBER",
                "give a metric and a number of evaluations, such as fid:5",
            )
        return metric, int(count)

    def check_ranking(self, usable: Sequence[str] = RANKING, data: str = "") -> None:
        """Raises UserError unless --keep_best and --stop_early name metrics of evaluations.

        Args:
          usable: The metrics that the evaluations of the run contain.
          data: The data of the run, for messages.
        """
        for flag, metric in (
            (f"--keep_best={self.keep_best}", self.keep_best),
            (f"--stop_early={self.stop_early}", self.patience and self.patience[0]),
        ):
            if metric is None:
                continue
            if metric not in usable:
                raise UserError(
                    f"{shorten(flag)}: evaluations{data} have no metric of this name with a best "
                    "value",
                    f"use {listed(usable)}",
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class UseSettings(Section):
    """The settings that the modes which use a saved run share."""

    checkpoint: str = _setting(
        "latest",
        "Checkpoint that --mode=sample, evaluate and export use, and that "
        "--restore_from starts from: latest, best (of --keep_best), or a number of iterations.",
        parse=_parse_checkpoint,
    )
    output: str | None = setting(
        None,
        "Path of the output of --mode=sample, score and export and of the picture of --closest, by "
        "default in --model_dir; or of the statistics of --reference, by default none.",
        path=True,
        kind="place",
        requires={"mode": SAVED_RUN_MODES},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings(UseSettings):
    """Evaluation: --mode=evaluate, --evaluate_interval and the comparison of two folders."""

    evaluate_samples: int = _setting(
        10_000,
        "Number of samples to evaluate, and maximum number of real examples.",
        minimum=2,
        maximum=1_000_000,
        of_run=True,
    )
    feature_extractor: str | None = _setting(
        None,
        "Network that computes the features for FID and the other metrics: classifier (small, "
        "trained on the run's own labeled images), inception (TF-GAN's, downloaded), or a Keras "
        "file or SavedModel (only from a source you trust, because it can run code). none: compare "
        "the values themselves, as for tables and signals (docs/evaluation.md). Default: "
        "classifier for labeled images of at most 32 pixels, otherwise inception; none for data "
        "that is not pictures.",
        path=True,
        of_run=EXTRACTORS,
        per_process=False,
        needed_by=("evaluate",),
    )
    closest: int = _setting(
        0,
        "Number of samples that --mode=evaluate draws next to the training images closest to them, "
        "to see whether they are copies. 0: none.",
        minimum=0,
        maximum=1000,
        applies={"mode": ("evaluate",)},
    )
    samples: str | None = setting(
        None,
        "Folder of images that --mode=evaluate compares with --reference, in place of the samples "
        "of a run.",
        path=True,
        kind="place",
        requires={"mode": ("evaluate",), "reference": True},
    )
    reference: str | None = setting(
        None,
        "Real images for --samples: a folder, or a .npz file of their statistics, as --output, "
        "pytorch-fid and clean-fid write it.",
        path=True,
        kind="place",
        requires={"mode": ("evaluate",)},
    )

    @property
    def is_comparison(self) -> bool:
        """Is True if --mode=evaluate compares images without a run; see `check_comparison`."""
        return self.samples is not None or self.reference is not None

    def check_comparison(self) -> None:
        """Raises UserError unless --samples, --reference and --output fit each other."""
        if not self.is_comparison:
            return
        given = f"--reference={self.reference}"
        if self.samples is None and self.output is None:
            raise UserError(
                f"{shorten(given)} needs images that are compared with it, or a file for its "
                "statistics",
                "add --samples=FOLDER (of a run: --mode=sample --sample_format=png writes it), or "
                "--output=FILE.npz",
            )
        if self.samples is None and str(self.reference).lower().endswith(".npz"):
            raise UserError(
                f"{shorten(given)} is a file of statistics already",
                "give a folder of images, or add --samples=FOLDER",
            )
        if self.output is not None and not self.output.lower().endswith(".npz"):
            raise UserError(
                f"--output={shorten(self.output)} does not end in .npz", "give a .npz file"
            )

    def check_feature_extractor(self, kind: str, data: str) -> None:
        """Raises UserError if --feature_extractor is for images, and the data has none.

        Args:
          kind: What the data contains: "points", "signals", "images" or "volumes".
          data: The name of the data, for messages.
        """
        if kind != "images" and self.feature_extractor not in (None, "none"):
            raise UserError(
                f"--feature_extractor={shorten(self.feature_extractor)} is for images, but {data} "
                f"contains {kind}",
                "omit --feature_extractor",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingSettings(UseSettings):
    """Samples: --mode=sample."""

    sample_format: str | None = _setting(
        None,
        "Output of --mode=sample: grid or interpolation (one PNG file), png (a folder of PNG "
        "files), npz or npy (arrays), csv (a table), or parquet (a typed table). Default: npz, "
        "npy, csv or parquet if --output ends so, otherwise grid.",
        choices=("grid", "interpolation", "png", "npz", "npy", "csv", "parquet"),
        applies={"mode": ("sample",)},
    )
    num_samples: int = _setting(
        64,
        "Number of samples that --mode=sample draws.",
        minimum=1,
        maximum=1_000_000,
        applies={"mode": ("sample",)},
    )
    sample_conditions: str | None = _setting(
        None,
        "Condition of the samples: the number or the name of a class, by default all in turn; or "
        "numbers in the units of the data, separated by commas, several conditions separated by "
        "semicolons, or a .npy or .csv file with a condition in each row, by default those of the "
        "data. With --sample_format=interpolation, rows move from the first to the last.",
        applies={"mode": ("sample",)},
    )

    @property
    def format_of_samples(self) -> str:
        """The format of --mode=sample."""
        ending = (self.output or "").rpartition(".")[2].lower()
        is_format = ending in ("npz", "npy", "csv", "parquet")
        return self.sample_format or (ending if is_format else "grid")
