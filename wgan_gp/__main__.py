"""The program of the installed package: `python -m wgan_gp` or `wgan-gp`, as train.py."""

from __future__ import annotations

import pathlib
import sys

from .runtime import signals, streams


def main() -> int:
    """Runs the program with the command line of this process and returns its exit status."""
    # These come before the other imports, which take a while.
    streams.ignore_output_errors()
    signals.exit_on_interrupt()
    from .app import program  # noqa: PLC0415

    try:
        from . import flags  # noqa: PLC0415 - the wheel contains it
    except ImportError:
        sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
        import flags  # noqa: PLC0415 - a checkout has it next to it

    @program.with_exit_status
    def run(argv: list[str]) -> int:
        flags.define()
        config = flags.parse(argv)
        return program.run(config, flags.given())

    return run(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
