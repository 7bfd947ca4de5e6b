"""The program: its modes and its exit status. TensorFlow is imported once the flags are valid."""

from __future__ import annotations

import functools
import os
import signal
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

from ..config import SAVED_RUN_MODES, Config
from ..errors import UserError
from ..runtime import onednn, streams, tpu_machine
from . import tpu_environment
from .connection import tpu_of_tensorflow
from .library import Library
from .resolve import check_keras, resolve
from .user_code import loading

if typing.TYPE_CHECKING:
    from ..runtime.devices import Devices


def with_exit_status(main: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """Decorates the main function of a program, which receives the command line.

    Warnings and progress are shown on stderr. A UserError becomes one line on stderr and the exit
    status 2. Ctrl-C before there is anything to save gives the exit status of that signal.
    """

    @functools.wraps(main)
    def program(argv: list[str]) -> int:
        streams.show_log_lines()
        try:
            return main(argv)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 128 + signal.SIGINT

    return program


def run(config: Config, given: Mapping[str, Any]) -> int:
    """Runs the mode that the configuration names, and returns the exit status.

    Args:
      config: The configuration of the command line.
      given: The settings that the command line sets, by name.

    Raises:
      UserError: If the run is impossible; the message says why.
    """
    if config.mode == "doctor":
        return run_doctor(config)
    tpu = tpu_of_tensorflow(config)
    prepare_environment(tpu)
    if tpu == "local":
        tpu_machine.check()  # with some of its errors, importing TensorFlow ends the process
    if config.is_comparison:
        from .comparing import compare  # noqa: PLC0415

        compare(config)
        return 2 if streams.stdout_failed() else 0
    if config.mode in SAVED_RUN_MODES:
        from . import modes  # noqa: PLC0415

        modes.use(config.mode, config.run_directory, given)
        return 2 if streams.stdout_failed() else 0
    return train_or_compile(config)


def train_or_compile(config: Config) -> int:
    """Trains a run or compiles it for a TPU slice, and returns the exit status; see `run`."""
    library = Library()
    user_code = loading.load(config, library.models)
    devices = connect_for(config, user_code)
    library = user_code.add_to(library)
    config, dataset = resolve(user_code.record(config), library.models, user_code.dataset)
    if config.mode == "compile":
        from .compiling import compile_for_slice  # noqa: PLC0415

        compile_for_slice(config, dataset, library)
        return 0
    from .training import train  # noqa: PLC0415

    result = train(config, dataset, library, devices=devices)
    if (stopped_by := result.stopped_by) is not None:
        print(
            f"stopped by {signal.Signals(stopped_by).name} after {result.iteration} of "
            f"{config.train_steps} iterations; the same command continues"
        )
    print(f"samples, curves and checkpoints are in {config.run_directory}")
    return 0 if stopped_by is None else 128 + stopped_by


def run_doctor(config: Config) -> int:
    """Reports the state of the machine, and returns the exit status."""
    from .doctor import doctor  # noqa: PLC0415
    from .doctor.facts import Facts  # noqa: PLC0415

    # Chips of this machine are checked without --tpu as well.
    prepare_environment(config.tpu or ("local" if tpu_machine.find_chips() else None))
    return doctor.report(Facts(config))


def connect_for(config: Config, user_code: loading.UserCode) -> Devices | None:
    """Connects to the devices if a dataset of the user may use TensorFlow, else returns None.

    Devices can only be configured before TensorFlow is used.
    """
    if user_code.dataset is None or config.mode == "compile":
        return None
    from .connection import connect  # noqa: PLC0415

    return connect(config)


def prepare_environment(tpu: str | None) -> None:
    """Sets environment variables that TensorFlow reads when it is imported.

    By default TensorFlow logs CUDA errors on every machine without a GPU. A user who sets
    TF_CPP_MIN_LOG_LEVEL still sees them. Without a chip, tensorflow-tpu would wait for minutes for
    the metadata of a TPU VM.

    Args:
      tpu: The value of --tpu.

    Raises:
      UserError: On Windows, which has neither the signals nor the file locks that runs need; or if
        another Keras than that of TensorFlow is selected.
    """
    if sys.platform == "win32":
        raise UserError(
            "training does not run on Windows itself",
            "use it in WSL2, the Windows Subsystem for Linux; losses and models work here",
        )
    check_keras()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if not tpu_machine.find_chips():
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    onednn.enable()
    tpu_environment.prepare(tpu)
