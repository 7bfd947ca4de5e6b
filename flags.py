"""Command-line flags, one absl flag per setting of wgan_gp.config.Config."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags

import wgan_gp
from wgan_gp.config import PYTHON, Config, has_flag, value_type
from wgan_gp.config.settings import TYPES, expand_home, largest, words
from wgan_gp.errors import UserError, shorten

_FIELDS = [field for field in dataclasses.fields(Config) if has_flag(field)]
_LEAST_COLUMNS = 40  # of --help
COMMON = "The flags that most runs need"
# The flagfiles of the experiments: next to this file in a checkout and in the installed package.
EXPERIMENTS = pathlib.Path(__file__).parent / "configs"


class _Switch(flags.BooleanParser):
    """Parses the values of absl's boolean flags, and "on" and "off" as well."""

    def parse(self, argument: str | int) -> bool:
        spelled = {"on": "true", "off": "false"}
        return super().parse(spelled.get(str(argument).lower(), argument))


_DEFINE: dict[type, Callable] = {
    bool: functools.partial(flags.DEFINE, _Switch(), boolean=True),
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines one flag per setting of Config, with the field's default, range and help."""
    for field in _FIELDS:
        kind = value_type(field)
        is_text = kind is str and field.default is not None  # also of a number or a text
        _DEFINE[kind](
            name=field.name,
            default=str(field.default) if is_text else field.default,
            help=_help(field),
            flag_values=values,
            module_name=_section(field),  # under which --help lists the flag
        )


def _section(field: dataclasses.Field) -> str:
    """Returns the title of the section of --help that lists a setting."""
    return COMMON if field.metadata["common"] else _topic(field)


def _topic(field: dataclasses.Field) -> str:
    """Returns what a setting is about: the first line of the section that declares it."""
    sections = reversed(Config.__mro__)
    owner = next(each for each in sections if field.name in getattr(each, "__annotations__", ()))
    return str(owner.__doc__).partition("\n")[0].rstrip(".")


def _help(field: dataclasses.Field) -> str:
    """Returns the help text of a setting, with its choices, or its range if it is an integer."""
    limits = field.metadata
    if isinstance(limits["choices"], Mapping):
        entries = [f"{name} ({meaning})" for name, meaning in limits["choices"].items()]
        return f"{limits['help']} {', '.join(entries)}."
    if limits["choices"] and value_type(field) is str:
        return f"<{'|'.join(words(limits))}>: {limits['help']}"
    if value_type(field) is not int or limits["choices"]:
        return limits["help"]
    return f"{limits['help']} Range: {limits['minimum']} to {largest(limits)}."


def parse(argv: list[str], values: flags.FlagValues = flags.FLAGS) -> Config:
    """Returns the configuration that a command line describes.

    `--flagfile=FILE` reads flags from a file. If there is no such file, the experiment of that
    name is read, so that configs/mnist.flags can be given in any directory.

    Raises:
      UserError: If a flag is unknown, a value has the wrong type or is out of range, or a
        flagfile cannot be read.
      SystemExit: If --help or --version was given; the text has been printed.
    """
    if (text := _requested_text(argv[1:], values)) is not None:
        print(text)
        raise SystemExit(0)
    if not {"--flagfile=", "-flagfile="}.isdisjoint(argv[1:]):  # absl ignores it
        raise UserError("--flagfile= is empty", "give a file, or omit the flag")
    try:
        rest = values([_find_experiment(argument) for argument in argv])
    except flags.UnrecognizedFlagError as error:
        guess = str(error).partition("Did you mean: ")[2].rstrip(" ?")
        remedy = f"did you mean --{guess}?" if guess else _see_help()
        raise UserError(f"--{shorten(error.flagname)} is unknown", remedy) from None
    except flags.IllegalFlagValueError as error:
        raise _illegal_value(str(error)) from None
    except flags.CantOpenFlagFileError as error:
        reason = str(error).partition("flagfile: ")[2]
        raise UserError(f"--flagfile cannot be read: {reason}", "give a file that exists") from None
    except (flags.Error, ValueError, OSError, RecursionError) as error:
        # absl raises the last three for some of its own flags, a flagfile that is not text, and a
        # very long name.
        raise UserError(f"the flags cannot be read ({shorten(str(error))})", _see_help()) from None
    if rest[1:]:
        raise UserError(
            f"unexpected argument {shorten(repr(rest[1]))}", "pass settings as --name=value"
        )
    return to_config(values)


def _requested_text(arguments: list[str], values: flags.FlagValues) -> str | None:
    """Returns the text of --help, --helpfull or --version, or None without any."""
    if "--helpfull" in arguments:
        return _help_text(values, list(dict.fromkeys([COMMON, *map(_section, _FIELDS)])))
    if not {"--help", "-help", "-h", "--helpshort"}.isdisjoint(arguments):
        return _help_text(values, [COMMON])
    if "--version" in arguments:
        return _versions()
    return None


def _help_text(values: flags.FlagValues, sections: list[str]) -> str:
    """Returns the description of the program and of the flags of some sections."""
    program = sys.modules["__main__"].__doc__ if _is_train() else None
    # absl cannot wrap text on a terminal that is narrower than its indents. The program ends here.
    os.environ["COLUMNS"] = str(max(_LEAST_COLUMNS, shutil.get_terminal_size().columns))
    return "\n".join(
        [
            (program or "Trains a Wasserstein GAN with gradient penalty.").strip(),
            "",
            "--helpfull shows all flags, and docs/flags.md has them by what they are for.",
            "--flagfile=FILE reads flags from a file, and --version shows the versions.",
            *(values.module_help(section) for section in sections),
        ]
    )


def reference() -> str:
    """Returns the page of the documentation that lists all flags, as Markdown."""
    lines = [
        "# Flags",
        "",
        "    python train.py --help",
        "",
        "shows the flags that most runs need, which are bold here; this page lists all, as",
        "`--helpfull` does, those of training first. `make flags` writes it. A run can be resumed",
        "with other values of the flags marked with *,",
        "and with another `--train_steps` if the schedules are constant, or if `--schedule_steps`",
        "keeps their length ([numerics.md](numerics.md#the-schedule)).",
        "",
        "`--flagfile=FILE` reads flags from a file, one in each line; a name such as",
        "`configs/mnist.flags` is found in any folder. Of a flag that is given twice, the last one",
        "counts, so your own flags belong after `--flagfile`. `--version` prints the versions, and",
        "`--verbosity=1` shows tracebacks of your code.",
    ]
    # --mode is declared last, but needed first.
    *topics, last = dict.fromkeys(map(_topic, _FIELDS))
    for topic in (last, *topics):
        lines += ["", f"## {topic}", "", "| flag | default | meaning |", "|---|---|---|"]
        lines += [_row(field) for field in _FIELDS if _topic(field) == topic]
    return "\n".join(lines) + "\n"


def _row(field: dataclasses.Field) -> str:
    """Returns the row of `reference` for a flag."""
    limits = field.metadata
    name = f"**`--{field.name}`**" if limits["common"] else f"`--{field.name}`"
    star = r" \*" if limits["resume"] else ""
    is_bool = value_type(field) is bool
    default = str(field.default).lower() if is_bool else field.default
    shown = "" if default in (None, "") else f"`{default}`"
    text = re.sub(r"([|<>*])", r"\\\1", _help(field))
    text = re.sub(r"docs/(\w+\.md)", r"[\1](\1)", text)
    return f"| {name}{star} | {shown} | {text} |"


def _versions() -> str:
    """Returns the versions of this program and of the packages that it computes with."""
    packages = ("tensorflow", "tensorflow-tpu", "keras", "jax", "libtpu", "numpy")
    found = []
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    python = ".".join(map(str, sys.version_info[:3]))
    return f"wgan-gp {wgan_gp.__version__} ({', '.join([f'Python {python}', *found])})"


def _see_help() -> str:
    return f"{_program()} --help lists the flags"


def _program() -> str:
    return "python train.py" if _is_train() else "wgan-gp"


def _is_train() -> bool:
    return sys.argv[0].endswith("train.py")


def _find_experiment(argument: str) -> str:
    """Returns --flagfile with the path of an experiment if it names no other file."""
    match = re.fullmatch(r"(--?flagfile=)(.+)", argument)
    if match is None or os.path.exists(match[2]):
        return argument
    experiment = EXPERIMENTS / os.path.basename(match[2])
    return f"{match[1]}{experiment}" if experiment.is_file() else argument


def to_config(values: flags.FlagValues = flags.FLAGS) -> Config:
    """Returns the parsed flags as a Config."""
    return Config(**{field.name: _value(field, values) for field in _FIELDS})


def given(values: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
    """Returns the values of the flags that the command line sets."""
    return {field.name: _value(field, values) for field in _FIELDS if values[field.name].present}


def _value(field: dataclasses.Field, values: flags.FlagValues) -> Any:
    value = values[field.name].value
    if value == PYTHON and field.metadata["choices"]:  # it stands for objects of wgan_gp.train
        usable = ", ".join(words(field.metadata))
        raise UserError(f"--{field.name}={value} is unknown", f"use one of {usable}")
    if field.metadata["path"] and value is not None:
        return expand_home(field.name, value)
    return value


def _illegal_value(message: str) -> UserError:
    """Translates absl's "flag --n_critic=abc: invalid literal for int() ..."."""
    match = re.match(r"flag (--(\w+)=.*?): ", message, re.DOTALL)
    settings = {field.name: field for field in _FIELDS}
    if match is None or match[2] not in settings:  # one of absl's own flags
        return UserError(shorten(message), _see_help())
    flag, name = match.groups()
    kind = value_type(settings[name])
    remedy = f"use --{name} or --no{name}" if kind is bool else f"give {TYPES[kind]}"
    return UserError(f"{shorten(flag)} is not {TYPES[kind]}", remedy)
