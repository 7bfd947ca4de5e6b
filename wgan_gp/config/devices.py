"""The settings of the devices."""

from __future__ import annotations

import dataclasses
import functools

from ..errors import UserError, shorten
from .settings import SAVED_RUN_MODES, Section, setting

_NOT_COMPILE = ("train", *SAVED_RUN_MODES, "doctor")  # which uses no device

_setting = functools.partial(setting, kind="place", per_process=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceSettings(Section):
    """The devices to train on, and the connection to them."""

    tpu: str | None = _setting(
        None,
        "TPU to train on: its NAME, ZONE/NAME or PROJECT/ZONE/NAME, by default in the zone and the "
        "project of this machine; its grpc:// address; or local on a TPU VM.",
        requires={"mode": _NOT_COMPILE},
        common=True,
    )
    tpu_cores: int | None = _setting(
        None,
        "Train on this many cores of the TPU, for example on 1 to find an error. Default: all.",
        minimum=1,
        maximum=65_536,
        requires={"tpu": True},
    )
    runtime: str = _setting(
        "auto",
        "What runs the training loop: tensorflow; pjrt, the XLA client of jax, which supports more "
        "TPUs and GPUs; or auto (pjrt for the TPU or GPUs of this machine, if jax has them).",
        choices=("auto", "tensorflow", "pjrt"),
    )
    cpu_replicas: int = _setting(
        1,
        "Split the CPU into this many replicas, as a rehearsal of as many TPU cores.",
        minimum=1,
        maximum=256,
        requires={"tpu": False, "mode": _NOT_COMPILE},
        common=True,
    )
    jit_compile: str = _setting(
        "auto",
        "Compile the steps with XLA: on, off, or auto (on a GPU; on a CPU, small networks of dense "
        "layers in long runs). A single device then runs the iterations of a loop without the "
        "host, as a TPU does, which always compiles.",
        choices=("auto", "on", "off"),
    )

    def __post_init__(self):
        super().__post_init__()
        *place, _ = parts = str(self.tpu).split("/")
        if self.tpu_has_name and (len(place) > 2 or not all(parts)):
            raise UserError(
                f"--tpu={shorten(str(self.tpu))} is not a TPU",
                "give its NAME, ZONE/NAME, PROJECT/ZONE/NAME, grpc://ADDRESS or local",
            )
        if self.tpu is not None and self.jit_compile == "on":
            raise UserError(
                "--jit_compile=on with --tpu requires XLA's CPU compiler, which a TPU VM lacks",
                "omit it: a TPU program is always compiled",
            )
        if self.runtime == "pjrt":
            self.check_pjrt()

    def check_pjrt(self) -> None:
        """Raises UserError if another flag contradicts training through jax."""
        if self.on_remote_tpu:
            raise UserError(
                f"--runtime=pjrt uses the TPU of this machine, not --tpu={self.tpu}",
                "start the program on the TPU VM with --tpu=local, or omit --runtime",
            )
        if self.jit_compile == "off":
            raise UserError(
                "--runtime=pjrt always compiles the loop, but --jit_compile=off is set",
                "omit it, or give --runtime=tensorflow",
            )

    @property
    def tpu_has_name(self) -> bool:
        """True if --tpu is a name that Google's Cloud TPU API must resolve."""
        return self.on_remote_tpu and not str(self.tpu).startswith("grpc://")

    @property
    def place_of_tpu(self) -> dict[str, str | None]:
        """The project, the zone and the name of --tpu; None for those of this machine."""
        parts = (self.tpu or "").split("/") if self.tpu_has_name else [self.tpu]
        return dict(zip(("tpu", "zone", "project"), [*reversed(parts), None, None], strict=False))

    @property
    def on_remote_tpu(self) -> bool:
        """True if the machines of the TPU are others than the one that runs Python."""
        return self.tpu not in (None, "local")
