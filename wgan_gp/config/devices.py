"""The settings of the devices."""

from __future__ import annotations

import dataclasses

from ..errors import UserError
from .settings import Section, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceSettings(Section):
    """The devices to train on, and the connection to them."""

    tpu: str | None = setting(
        None,
        "TPU to train on: its name, its grpc:// address, or local on a TPU VM.",
        affects="nothing",
        common=True,
    )
    tpu_zone: str | None = setting(
        None,
        "Zone of a TPU given by its name. Default: the zone of this machine.",
        affects="nothing",
    )
    tpu_project: str | None = setting(
        None,
        "Project of a TPU given by its name. Default: the project of this machine.",
        affects="nothing",
    )
    tpu_cores: int | None = setting(
        None,
        "Train on this many cores of the TPU, for example on 1 to find an error. Default: all.",
        minimum=1,
        maximum=65_536,
        affects="nothing",
    )
    runtime: str = setting(
        "auto",
        "What runs the training loop: tensorflow; pjrt, the XLA client of jax, which supports more "
        "TPUs and GPUs; or auto (pjrt for the TPU or GPUs of this machine, if jax has them).",
        choices=("auto", "tensorflow", "pjrt"),
        affects="nothing",
    )
    start_timeout: int = setting(
        600,
        "Seconds to wait for a TPU or for the other machines.",
        minimum=1,
        maximum=604_800,
        per_process=True,
        affects="nothing",
    )
    cpu_replicas: int = setting(
        1,
        "Split the CPU into this many replicas, as a rehearsal of as many TPU cores.",
        minimum=1,
        maximum=256,
        affects="nothing",
        common=True,
    )
    jit_compile: str = setting(
        "auto",
        "Compile the steps with XLA: on, off, or auto (on a GPU; on a CPU, small networks of dense "
        "layers in long runs). A TPU always compiles them.",
        choices=("auto", "on", "off"),
        affects="nothing",
    )
    device_loop: str = setting(
        "auto",
        "Run all iterations of a loop in one program on the device, without the host: on, off, or "
        "auto (on for a TPU, and for a single device with XLA).",
        choices=("auto", "on", "off"),
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.tpu is not None and self.cpu_replicas > 1:
            raise UserError("--tpu and --cpu_replicas exclude each other", "omit one of them")
        if self.tpu is not None and self.jit_compile == "on":
            raise UserError(
                "--jit_compile=on with --tpu requires XLA's CPU compiler, which a TPU VM lacks",
                "omit it: a TPU program is always compiled",
            )
        if self.runtime == "pjrt":
            self.check_pjrt()
        if self.tpu is None and (self.tpu_zone or self.tpu_project):
            raise UserError("--tpu_zone and --tpu_project require a TPU", "add --tpu=NAME")
        if self.tpu is None and self.tpu_cores is not None:
            raise UserError("--tpu_cores requires a TPU", "add --tpu=local or --tpu=NAME")

    def check_pjrt(self) -> None:
        """Raises UserError if another flag contradicts training through jax."""
        if self.on_remote_tpu:
            raise UserError(
                f"--runtime=pjrt uses the TPU of this machine, not --tpu={self.tpu}",
                "start the program on the TPU VM with --tpu=local, or omit --runtime",
            )
        for name in ("jit_compile", "device_loop"):
            if getattr(self, name) == "off":
                raise UserError(
                    f"--runtime=pjrt always compiles the loop, but --{name}=off is set",
                    "omit it, or give --runtime=tensorflow",
                )

    @property
    def tpu_has_name(self) -> bool:
        """True if --tpu is a name that Google's Cloud TPU API must resolve."""
        return self.on_remote_tpu and not str(self.tpu).startswith("grpc://")

    @property
    def on_remote_tpu(self) -> bool:
        """True if the machines of the TPU are others than the one that runs Python."""
        return self.tpu not in (None, "local")
