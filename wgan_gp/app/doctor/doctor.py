"""The mode `doctor`: checks the installation, the devices, the TPU and the buckets of the flags.

Nothing is created or changed, except for one object in the bucket of --model_dir, which is removed.
It also works without TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...errors import UserError, reason
from ...runtime import streams
from . import cloud_checks, machine_checks
from .facts import Facts, NotChecked
from .machine_checks import Result

_Check = Callable[[Facts], "Result | Sequence[Result]"]

# What is checked, in the order of the lines.
CHECKS: dict[str, _Check] = {
    "Python": lambda facts: machine_checks.check_python(),
    "packages": machine_checks.check_packages,
    "TPU chips of this machine": machine_checks.check_chips,
    "libtpu": machine_checks.check_libtpu,
    "jax": machine_checks.check_jax,
    "free memory": machine_checks.check_memory,
    "free space": machine_checks.check_disk,
    "TensorFlow": machine_checks.check_tensorflow,
    "devices of TensorFlow": machine_checks.check_devices,
    "TF_CONFIG": machine_checks.check_tf_config,
    "runtime": machine_checks.check_runtime,
    "devices of jax": machine_checks.check_jax_devices,
    "unused devices": machine_checks.check_unused,
    "compiled programs": machine_checks.check_programs,
    "TPU by name": cloud_checks.check_tpu,
    "buckets": cloud_checks.check_buckets,
    "location of buckets": cloud_checks.check_locations,
}


def report(facts: Facts, checks: dict[str, _Check] = CHECKS) -> int:
    """Prints what the checks find, and returns the exit status: 2 if there is a problem, else 0."""
    problems = unchecked = 0
    for name, check in checks.items():
        for result in _results(check, facts):
            problems += isinstance(result, UserError)
            unchecked += isinstance(result, NotChecked)
            text = " ".join(str(result).split())
            print(f"{status_of(result):<11}  {name}: {text}", flush=True)
    print(f"{problems or 'no'} problem{'' if problems == 1 else 's'}, {unchecked} not checked")
    return 2 if problems or streams.stdout_failed() else 0


def status_of(result: Result) -> str:
    """Returns the first word of the line of a result."""
    if isinstance(result, UserError):
        return "problem"
    return "not checked" if isinstance(result, NotChecked) else "OK"


def _results(check: _Check, facts: Facts) -> Iterator[Result]:
    """Yields the results of a check; an unexpected error is a check that was not made."""
    try:
        found = check(facts)
    except UserError as error:
        found = error
    except Exception as error:
        found = NotChecked(f"the check failed ({type(error).__name__}: {reason(error)})")
    yield from [found] if isinstance(found, str | UserError) else found
