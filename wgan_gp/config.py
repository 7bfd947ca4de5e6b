"""The configuration of a run: every setting with its default, its range and its help text.

flags.py defines one command-line flag per field, and config.json in the run directory stores all
fields. This module does not import TensorFlow, so that an invalid flag is rejected at once.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
import typing
from typing import Any

from . import checks
from .errors import UserError, shorten

# The engine does not import losses/, nor this module TensorFlow: a test compares these with
# the registries there.
ADVERSARIAL_LOSSES = ("wasserstein", "logistic", "hinge", "least_squares")
PENALTIES = (
    "two_sided",
    "one_sided",
    "zero_centred",
    "r1",
    "r2",
    "dragan",
    "weight_clipping",
    "none",
)
WITH_TARGET = ("two_sided", "one_sided", "dragan")  # of these, a gradient norm other than 0
CRITIC_NORMALIZATIONS = ("none", "layer", "group", "instance", "spectral")
CONDITIONINGS = ("none", "acgan", "projection")
OF_A_SAVED_RUN = ("evaluate", "sample", "export")  # modes


def _setting(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[Any, ...] = (),
    open_ended: bool = False,
    free: bool = False,
    path: bool = False,
    per_process: bool = False,
) -> Any:
    """Declares a setting.

    Args:
      default: its value where none is given; None: it may have none.
      help: for --help.
      minimum, maximum, above, below: its range, with its ends (minimum, maximum) or without. A
        whole number has the maximum checks.LARGEST, or a lower one where more would only end in an
        overflow, or fill the memory.
      choices: its only values.
      open_ended: the flag takes any text, and the choices are checked here alone.
      free: a resumed run may change it, because the result does not depend on it.
      path: may name a file or a directory, so a leading ~ means the home directory.
      per_process: processes that train together may have different values. All other settings must
        agree, because they decide what is computed and when the processes wait for each other.
    """
    metadata = {
        "help": help,
        "minimum": minimum,
        "maximum": maximum,
        "above": above,
        "below": below,
        "choices": choices,
        "open_ended": open_ended,
        "free": free,
        "path": path,
        "per_process": per_process,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of one run.

    Raises:
      UserError: If a value is invalid, or two values contradict each other.
    """

    mode: str = _setting(
        "train",
        "train; evaluate, sample or export: of the run in --model_dir; compile: for a TPU slice, "
        "without one (docs/compile.md reads the report).",
        choices=("train", *OF_A_SAVED_RUN, "compile"),
        free=True,
    )
    compile_topology: str = _setting(
        "v5e-8",
        "Slice to compile for: v2-8, v3-8, v4-8, v5e-8, v5p-8, v6e-8 and other sizes, or a "
        "layout such as v5e:2x4.",
        free=True,
    )

    # What to learn, and where to keep it.
    dataset: str = _setting(
        "digits",
        "What to learn: digits, gaussians_8, gaussians_25, swiss_roll; image_folder or tfrecord, "
        "in --data_dir; or any image dataset of tensorflow-datasets, by name (docs/data.md).",
    )
    data_dir: str | None = _setting(
        None,
        "Where the data is: a folder of pictures (image_folder), a pattern of files (tfrecord), or "
        "where tensorflow-datasets prepares its own. Local or gs://.",
        free=True,
        path=True,
        per_process=True,
    )
    test_data_dir: str | None = _setting(
        None,
        "The same of data that is not trained on: the critic's loss there shows whether it "
        "overfits. Default: of tensorflow-datasets, the split called test or validation.",
        free=True,
        path=True,
        per_process=True,
    )
    download: bool = _setting(
        False,
        "Download and prepare a dataset of tensorflow-datasets that is not there.",
        free=True,
        per_process=True,
    )
    split: str = _setting("train", "Split of a dataset of tensorflow-datasets.")
    num_classes: int | None = _setting(
        None, "Labels in a tfrecord dataset: 0 ... num_classes - 1.", minimum=1, maximum=1_000_000
    )
    image_size: int | None = _setting(
        None,
        "Side of the images, in pixels: their middle square is resized. Default: their own, and 64 "
        "at most where they differ.",
        minimum=1,
        maximum=4096,
    )
    image_channels: int | None = _setting(
        None,
        "1 (grey) or 3 (colour). Default: the dataset's own; 3 of image_folder and tfrecord.",
        choices=(1, 3),
    )
    random_flips: bool = _setting(False, "Mirror half of the real images.")
    dequantization: bool = _setting(
        True,
        "Add noise below one grey level to images of 256 levels, so that a critic sees no steps.",
    )
    cache: str = _setting(
        "auto",
        "Hold all images, decoded, in memory: on, off, or auto (up to 1 GiB).",
        choices=("auto", "on", "off"),
    )
    model_dir: str | None = _setting(
        None,
        "Run directory, any path TensorFlow can open (local, gs://). Default: runs/<dataset>.",
        free=True,
        path=True,
        per_process=True,
    )

    # The networks.
    model: str | None = _setting(
        None,
        "Networks: mlp (points and tiny images), dcgan (images of 8 pixels or more), resnet (32, "
        "48, 64 or 128) or resnet101 (32, 64 or 128). Default: mlp for points and for images of up "
        "to 8 pixels, else dcgan.",
    )
    generator_model: str | None = _setting(
        None, "The generator, where it is another network. Default: --model."
    )
    model_width: int | None = _setting(
        None,
        "Hidden units (mlp) or channels, at half size (dcgan) or at full size (resnet). Default: "
        "256 for mlp, else 64.",
        minimum=1,
        maximum=16_384,
    )
    generator_width: int | None = _setting(
        None, "The same of the generator. Default: --model_width.", minimum=1, maximum=16_384
    )
    model_depth: int | None = _setting(
        None,
        "Hidden layers (mlp) or blocks at each size (resnet101). Default: 3 and 6.",
        minimum=1,
        maximum=256,
    )
    activation: str = _setting(
        "relu",
        "Of all hidden layers: relu (leaky in dcgan's critic) or tanh.",
        choices=("relu", "tanh"),
    )
    generator_normalization: str = _setting(
        "batch",
        "Of the generator's layers (mlp has none): batch or none.",
        choices=("batch", "none"),
    )
    generator_channels: str = _setting(
        "doubling",
        "Of dcgan's generator at half the size: doubling or constant.",
        choices=("doubling", "constant"),
    )
    critic_normalization: str = _setting(
        "none",
        "What normalises the critic: none; layer (over all of an example), group or instance "
        "(of the features); spectral (of the weights).",
        choices=CRITIC_NORMALIZATIONS,
    )
    critic_pooling: str = _setting(
        "mean",
        "How the critic of resnet at 32 pixels pools its last features over all pixels: mean (the "
        "paper's) or sum (64 times as much). Other critics do not pool.",
        choices=("mean", "sum"),
    )
    batch_norm_momentum: float = _setting(
        0.99,
        "Share of the accumulated moments of the generator's batch-norm that each batch keeps (1 "
        "minus PyTorch's momentum).",
        minimum=0,
        below=1,
    )
    conditioning: str = _setting(
        "none",
        "How the dataset's labels enter the critic, if at all: none, acgan (it classifies) or "
        "projection. The generator is then given labels too.",
        choices=CONDITIONINGS,
    )
    latent_size: int = _setting(
        64, "Length of the latent vector, drawn from N(0, I).", minimum=1, maximum=65_536
    )

    # The schedule.
    train_steps: int = _setting(
        7500, "Iterations in all: n_critic critic steps and a generator step each.", minimum=1
    )
    n_critic: int = _setting(5, "Critic steps per generator step.", minimum=1, maximum=10_000)
    batch_size: int = _setting(
        64, "Real images in a critic step, over all replicas.", minimum=1, maximum=2**20
    )
    generator_batch_size: int | None = _setting(
        None,
        "Samples in a generator step, over all replicas. Default: --batch_size.",
        minimum=1,
        maximum=2**20,
    )
    steps_per_loop: int = _setting(
        50,
        "Iterations per call from Python; summaries, samples and checkpoints fall between.",
        minimum=1,
        free=True,
    )

    # The objective; docs/losses.md has the equation and the paper of each.
    adversarial_loss: str = _setting(
        "wasserstein",
        "wasserstein, logistic (non-saturating), hinge or least_squares.",
        choices=ADVERSARIAL_LOSSES,
    )
    penalty: str = _setting(
        "two_sided",
        "What holds the critic's gradient norm: between real and fake to a target (two_sided, "
        "WGAN-GP), below it (one_sided, WGAN-LP) or at 0 (zero_centred); at 0 on real (r1) or "
        "fake (r2) images; to a target around real ones (dragan); weight_clipping; none.",
        choices=PENALTIES,
        open_ended=True,
    )
    penalty_weight: float = _setting(
        10.0,
        "Weight of the penalty in the critic's loss (lambda; for r1 and r2, gamma / 2).",
        minimum=0,
    )
    penalty_target: float = _setting(
        1.0, "Gradient norm that two_sided, one_sided and dragan ask for.", minimum=0
    )
    penalty_interval: int = _setting(
        1, "Penalise every k-th critic step only, k times as much.", minimum=1
    )
    penalty_noise: float = _setting(
        0.25, "Standard deviation of dragan's noise, in the data's units.", minimum=0
    )
    clip_value: float = _setting(
        0.01, "Largest weight that weight_clipping leaves the critic.", above=0
    )
    drift_weight: float = _setting(
        0.0, "Weight of D(real)^2, which keeps scores near 0 (0.001 in ProGAN).", minimum=0
    )
    critic_class_weight: float = _setting(
        1.0, "Weight of acgan's cross-entropy on real images, in the critic's loss.", minimum=0
    )
    generator_class_weight: float = _setting(
        0.1, "Weight of acgan's cross-entropy on samples, in the generator's loss.", minimum=0
    )

    # The optimizers: one Adam for each network.
    critic_learning_rate: float = _setting(1e-3, "Adam's rate for the critic.", above=0)
    generator_learning_rate: float = _setting(1e-3, "Adam's rate for the generator.", above=0)
    beta_1: float = _setting(0.0, "Adam's decay of the mean gradient.", minimum=0, below=1)
    beta_2: float = _setting(0.9, "Adam's decay of the mean squared gradient.", minimum=0, below=1)
    learning_rate_schedule: str = _setting(
        "linear", "constant, or linear: to 0 at --train_steps.", choices=("constant", "linear")
    )

    generator_ema_decay: float = _setting(
        0.0,
        "Decay of a moving average of the generator, a generator step (0.999); samples are then "
        "drawn from the average. 0: none.",
        minimum=0,
        below=1,
    )
    sampling_statistics: str = _setting(
        "accumulated",
        "Moments that the generator's batch-norm takes in sampling: accumulated in training, or "
        "those of the batch of samples.",
        choices=("accumulated", "batch"),
        free=True,
    )
    seed: int = _setting(
        0,
        "Seed of weights, noise and data order: one seed, one run, on any number of replicas.",
        minimum=0,
    )

    # The machine.
    tpu: str | None = _setting(
        None, "TPU to train on: its name, its grpc:// address, or local on a TPU VM.", free=True
    )
    tpu_zone: str | None = _setting(
        None, "Zone of a TPU given by its name. Default: this machine's.", free=True
    )
    tpu_project: str | None = _setting(
        None, "Project of a TPU given by its name. Default: this machine's.", free=True
    )
    start_timeout: int = _setting(
        600,
        "Seconds to wait for a TPU, or for the other machines.",
        minimum=1,
        free=True,
        maximum=604_800,
        per_process=True,
    )
    cpu_replicas: int = _setting(
        1,
        "Split the CPU into this many replicas: the rehearsal of as many TPU cores.",
        minimum=1,
        free=True,
        maximum=256,
    )
    precision: str = _setting(
        "float32",
        "What convolutions and matrix products are computed in: float32 or mixed_bfloat16 "
        "(docs/performance.md).",
        choices=("float32", "mixed_bfloat16"),
    )
    fused_resampling: str = _setting(
        "auto",
        "A convolution and its resampling as one operation, in resnet: auto (on, but for a GPU), "
        "on or off. The same function, the same weights.",
        choices=("auto", "on", "off"),
        free=True,
    )
    jit_compile: str = _setting(
        "auto",
        "Compile the step with XLA on CPU and GPU: auto, on or off. A TPU always compiles.",
        choices=("auto", "on", "off"),
        free=True,
    )

    # What to leave in the run directory, every so many iterations (0: only at the end).
    summary_interval: int = _setting(100, "Iterations between summaries.", minimum=0, free=True)
    sample_interval: int = _setting(500, "Iterations between sample grids.", minimum=0, free=True)
    checkpoint_interval: int = _setting(
        500, "Iterations between checkpoints.", minimum=0, free=True
    )
    keep_checkpoints: int = _setting(5, "Newest checkpoints to keep.", minimum=1, free=True)
    keep_checkpoint_interval: int = _setting(
        0,
        "Keep for good the first checkpoint at or after every multiple of this many iterations; "
        "0: none.",
        minimum=0,
        free=True,
    )
    restore_from: str | None = _setting(
        None,
        "Begin a new run where another stands: its directory, or one of its checkpoints/ckpt-N. "
        "Once the run has a checkpoint of its own, it goes on from that.",
        free=True,
        path=True,
    )
    on_nonfinite: str = _setting(
        "stop",
        "When a loss or weight is not finite: stop, or rollback: go on from the last checkpoint, "
        "with other noise.",
        choices=("stop", "rollback"),
        free=True,
    )
    max_rollbacks: int = _setting(
        3, "Rollbacks of a run before it stops all the same.", minimum=1, free=True
    )
    evaluate_interval: int = _setting(
        0, "Iterations between evaluations; 0: none.", minimum=0, free=True
    )
    profile_steps: str | None = _setting(
        None, "Iterations to profile for TensorBoard, as FIRST,LAST.", free=True, per_process=True
    )

    # Judging and using a run.
    evaluate_samples: int = _setting(
        10_000,
        "Samples to judge, and real examples at most.",
        minimum=2,
        free=True,
        maximum=1_000_000,
    )
    feature_extractor: str | None = _setting(
        None,
        "What FID and its like see by: classifier (small, fitted to the run's own labelled "
        "images), inception (of TF-GAN, from the network), or a Keras file or SavedModel (trusted: "
        "it is code). "
        "Default: classifier for labelled images of up to 32 pixels, else inception.",
        free=True,
        path=True,
    )
    sample_format: str = _setting(
        "grid",
        "What --mode=sample writes: grid or interpolation (a PNG), png (a folder) or npz.",
        choices=("grid", "interpolation", "png", "npz"),
        free=True,
    )
    num_samples: int = _setting(
        64, "Samples that --mode=sample draws.", minimum=1, free=True, maximum=1_000_000
    )
    sample_seed: int | None = _setting(
        None,
        "Seed of the samples' noise. Default: --seed.",
        minimum=0,
        free=True,
    )
    sample_class: int | None = _setting(
        None,
        "Class to sample, of a conditional run. Default: all in turn.",
        minimum=0,
        free=True,
        maximum=1_000_000,
    )
    output: str | None = _setting(
        None,
        "Where --mode=sample and --mode=export write. Default: in --model_dir.",
        free=True,
        path=True,
        per_process=True,
    )

    def __post_init__(self):
        if self.critic_normalization == "batch":
            raise UserError(
                "--critic_normalization=batch makes each score depend on the whole batch, but the "
                "penalty is on each example's own gradient (arXiv:1704.00028, section 4)",
                "use layer, group or instance",
            )
        for field in dataclasses.fields(self):
            _check(field, getattr(self, field.name))
        if self.tpu is not None and self.cpu_replicas > 1:
            raise UserError("--tpu and --cpu_replicas exclude each other", "leave one of them out")
        if self.tpu is not None and self.jit_compile == "on":
            raise UserError(
                "--jit_compile=on with --tpu asks for XLA's CPU compiler, which a TPU VM lacks",
                "leave it out: a TPU program is always compiled",
            )
        if self.conditioning == "acgan" and not self.critic_class_weight:
            raise UserError(
                "--critic_class_weight=0 with --conditioning=acgan leaves a classifier that learns "
                "nothing, for the generator to follow",
                "give a weight, or use --conditioning=projection",
            )
        if self.tpu is None and (self.tpu_zone or self.tpu_project):
            raise UserError("--tpu_zone and --tpu_project are of a TPU", "add --tpu=NAME")
        _ = self.profiled
        self.check_replicas(self.cpu_replicas)

    @property
    def profiled(self) -> tuple[int, int] | None:
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
                f"--profile_steps={shorten(self.profile_steps)} is no FIRST,LAST",
                "give two iterations, counted from 1, such as 200,250",
            )
        if first > self.train_steps:
            raise UserError(
                f"--profile_steps={self.profile_steps} is beyond --train_steps={self.train_steps}",
                "give iterations that there are",
            )
        return first, last

    def check_paths(self, *, built_in: bool) -> None:
        """Raises UserError if a remote TPU would have to access a path on this machine.

        TensorFlow would fail minutes later: "File system scheme '[local]' not implemented".

        Args:
          built_in: Whether the dataset is built in and has no files.
        """
        if not self.on_remote_tpu:
            return
        paths = {"model_dir": self.run_directory}
        if not built_in:
            paths["data_dir"] = self.data_dir or "(tensorflow-datasets' own folder)"
        if self.test_data_dir is not None:
            paths["test_data_dir"] = self.test_data_dir
        if self.restore_from is not None:
            paths["restore_from"] = self.restore_from
        for flag, path in paths.items():
            if "://" not in path:
                raise UserError(
                    f"--{flag}={path} is on this machine, but the machines of --tpu={self.tpu} "
                    "read and write",
                    f"give --{flag}=gs://BUCKET/..., or --tpu=local on a TPU VM",
                )

    @property
    def run_directory(self) -> str:
        return self.model_dir or f"runs/{self.dataset}"

    @property
    def on_remote_tpu(self) -> bool:
        """True if the machines of a TPU node or pod read the data and write the checkpoints."""
        return self.tpu not in (None, "local")

    @property
    def generator_batch(self) -> int:
        return self.generator_batch_size or self.batch_size

    def check_replicas(self, replicas: int) -> None:
        """Raises UserError unless the batch sizes and flags fit the number of replicas."""
        if replicas > 1 and self.jit_compile == "on":
            raise UserError(
                f"--jit_compile=on cannot compile across {replicas} replicas", "leave it out"
            )
        for name, value in (
            ("batch_size", self.batch_size),
            ("generator_batch_size", self.generator_batch),
        ):
            if value % replicas:
                below, above = value // replicas * replicas, -(-value // replicas) * replicas
                near = f"{below} or {above}" if below else f"{above}"
                raise UserError(
                    f"--{name}={value} does not divide over {replicas} replicas", f"use {near}"
                )

    @property
    def drawn_with(self) -> int:
        """The seed of the samples' noise."""
        return self.seed if self.sample_seed is None else self.sample_seed

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Returns the differences from a saved configuration that prevent a resume.

        Free settings may differ. train_steps may differ under constant learning rates.

        Args:
          saved: The content of a config.json, whose values are valid; see `from_dict`.

        Returns:
          Texts such as `--flag: old -> new`; empty if the run can be resumed.
        """
        saved = _with_booleans(saved)
        return [
            f"{shorten(name)}: of a newer version, or damaged" for name in self._unknown(saved)
        ] + [
            f"--{name}: {shorten(as_text(old))} -> {shorten(as_text(getattr(self, name)))}"
            for name, old in self._saved_otherwise(saved).items()
        ]

    def way_to_continue(self, saved: dict[str, Any]) -> str:
        """Returns how to continue a saved run of another configuration, for an error's remedy."""
        saved = _with_booleans(saved)
        if self._unknown(saved):
            return "continue it with the version that wrote it"
        settings = self._saved_otherwise(saved)
        given = [f"--{name}={as_text(old)}" for name, old in settings.items() if old is not None]
        left_out = [f"--{name}" for name, old in settings.items() if old is None]
        parts = (("give", shlex.join(given)), ("leave out", " ".join(left_out)))
        return " and ".join(f"{verb} {what}" for verb, what in parts if what) + " to continue it"

    def _unknown(self, saved: dict[str, Any]) -> list[str]:
        """Returns the keys of a saved configuration that this version does not have."""
        return sorted(saved.keys() - {field.name for field in dataclasses.fields(self)})

    def _saved_otherwise(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Returns the saved values that differ and that a resumed run may not change."""
        schedules = {self.learning_rate_schedule, saved.get("learning_rate_schedule", "linear")}
        constant = schedules == {"constant"}
        found = {}
        for field in dataclasses.fields(self):
            if field.name not in saved and field.default is None:
                continue  # younger than the run, and its default follows from the others
            # A setting younger than the run was at its default when the run was made.
            old = saved.get(field.name, field.default)
            free = field.metadata["free"] or (field.name == "train_steps" and constant)
            if old != getattr(self, field.name) and not free:
                found[field.name] = old
        return found

    def binding(self) -> dict[str, Any]:
        """Returns the settings on which the result of a run depends."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if not field.metadata["free"]
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any], *, origin: str = "the saved configuration") -> Config:
        """Returns the configuration for the content of a config.json.

        Args:
          saved: The content. Unknown keys are ignored. Missing settings, from before they were
            added, have their defaults.
          origin: The path of the file, for messages.

        Raises:
          UserError: If a value is invalid, or two values contradict each other.
        """
        saved = _check_saved(saved, origin)
        names = {field.name for field in dataclasses.fields(cls)}
        try:
            return cls(**{name: value for name, value in saved.items() if name in names})
        except UserError as error:
            raise UserError(f"{origin}: {error.what}", error.remedy) from None

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@functools.cache
def _type_hints() -> dict[str, Any]:
    return typing.get_type_hints(Config)


def value_type(field: dataclasses.Field) -> type:
    """Returns bool, int, float or str: the type of a setting, whether or not it may be None."""
    hint = _type_hints()[field.name]
    return next((kind for kind in typing.get_args(hint) if kind is not type(None)), hint)


def _check(field: dataclasses.Field, value: Any) -> None:
    """Raises UserError unless a value is valid for a setting."""
    optional = field.default is None
    checks.check(field.name, value, value_type(field), field.metadata, optional=optional)


def as_text(value: Any) -> str:
    """Returns the value of a setting as a command line and messages spell it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _with_booleans(saved: dict[str, Any]) -> dict[str, Any]:
    """Returns a saved configuration with booleans for "on" and "off".

    Earlier versions wrote the two words for settings that are booleans now.
    """
    words = {"on": True, "off": False}
    switches = {field.name for field in dataclasses.fields(Config) if value_type(field) is bool}
    return {
        name: words[value] if name in switches and value in ("on", "off") else value
        for name, value in saved.items()
    }


def _check_saved(saved: dict[str, Any], origin: str) -> dict[str, Any]:
    """Returns the settings of a saved configuration as this version has them.

    Raises:
      UserError: a setting cannot have its value.
    """
    saved = _with_booleans(saved)
    for field in dataclasses.fields(Config):
        if field.name not in saved:
            continue
        try:
            _check(field, saved[field.name])
        except UserError as error:
            raise UserError(
                f"{origin} is damaged, edited or of a newer version: {error.what}",
                "restore the file as it was, or use the version that wrote it",
            ) from None
    return saved
