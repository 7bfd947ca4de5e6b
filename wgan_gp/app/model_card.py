"""The model card of an export: README.md, with the header that model hubs read, and a picture.

Names that come from the data or from settings stand in blocks of code, which they cannot leave, and
not in the header. The card contains no path.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re

import tensorflow as tf

from ..config import PYTHON, Config, as_text, settings_of_run
from ..data.spec import count_of
from ..errors import printable
from ..evaluation import results
from ..inference.pictures import overview, sample_sheet
from .library import Registry
from .saved_config import is_dataset_name
from .saved_run import RestoredRun, SavedRun
from .user_code.network_checks import find_user_networks

CARD = "README.md"
PICTURE = "samples.png"
_ROLES = {"model": "critic", "generator_model": "generator"}
_DESCRIBED = ("data", "networks", "training")  # what the settings in a card affect

_HEADER = """\
---
# Add a line with the license of your model, such as "license: apache-2.0".
library_name: wgan-gp
tags:
- wgan-gp
- gan
- tensorflow
{task}---"""
_TASK = "pipeline_tag: unconditional-image-generation\n"


def files_of(saved: SavedRun, run: RestoredRun, origin: str) -> dict[str, bytes | str]:
    """Returns the content of the model card and its picture, by the names of the files.

    Args:
      saved: The run.
      run: Its networks.
      origin: The export as an argument of `wgan_gp.load`.
    """
    spec = saved.spec
    draw = functools.partial(overview, units=spec.units)
    picture = sample_sheet(run.sampler, len(spec.example_shape), draw)
    return {CARD: _card(saved, run, origin), PICTURE: tf.io.encode_png(picture).numpy()}


def _card(saved: SavedRun, run: RestoredRun, origin: str) -> str:
    config, spec = saved.config, saved.spec
    is_image, is_conditional = len(spec.example_shape) == 3, bool(spec.classes or spec.conditions)
    parts = [
        _HEADER.format(task=_TASK if is_image and not is_conditional else ""),
        "# Generator of a Wasserstein GAN with gradient penalty",
        f"![Samples]({PICTURE})",
        "## Network",
        _network(saved, run),
        "## Data",
        _block(f"{_dataset(config)}: {spec.describe(saved.size)}"),
        "## Training",
        f"{count_of(run.iteration, 'iteration')} of {count_of(config.n_critic, 'critic step')} and "
        "one generator step. These settings differ from the defaults, or were chosen for the data:",
        _block("\n".join(_settings(config, saved.library.models)) or "(none)"),
    ]
    with saved.directory.convert_file_errors("read"):
        metrics = results.recorded_table(saved.directory, run.iteration)
    if metrics is not None:
        parts += ["## Metrics", _block(metrics)]
    parts += ["## Use", *_use(saved, origin)]
    return "\n\n".join(parts) + "\n"


def _network(saved: SavedRun, run: RestoredRun) -> str:
    """Returns a sentence about the generator."""
    config, spec = saved.config, saved.spec
    is_own = "generator" in find_user_networks(config, saved.library.models)
    origin = "code of the author" if is_own else f"`{config.generator_model or config.model}`"
    average = run.state.generator_average
    weights = sum(math.prod(weight.shape) for weight in run.state.sampling_generator.weights)
    size = spec.latent_size(config.latent_size)
    inputs = [f"latent vectors of length {size}, drawn from N(0, I),"]
    if spec.conditions is not None:
        inputs.append(f"and conditions of {count_of(spec.conditions.size, 'number')}")
    elif spec.classes:
        inputs.append(f"and labels of {count_of(spec.classes, 'class')}")
    return (
        f"The generator ({origin}, {weights:,} weights"
        f"{'' if average is None else ', moving average'}) maps {' '.join(inputs)} to examples of "
        f"shape {list(spec.example_shape)}."
    )


def _dataset(config: Config) -> str:
    """Returns the name of the data, which is no path."""
    return config.dataset if _has_name(config) else "data of the author"


def _has_name(config: Config) -> bool:
    return config.dataset != PYTHON and is_dataset_name(config.dataset)


def _settings(config: Config, models: Registry) -> list[str]:
    """Returns the settings that describe the run and differ from their defaults, as flags."""
    own = find_user_networks(config, models)
    left_out = {name for name, role in _ROLES.items() if role in own}
    if not _has_name(config):
        left_out.add("dataset")
    of_run = settings_of_run(Config, dataclasses.asdict(config))
    return [
        f"--{field.name}={as_text(value)}"
        for field in dataclasses.fields(config)
        if field.metadata["affects"] in _DESCRIBED and field.name not in left_out
        if (value := of_run.get(field.name, field.default)) != field.default
    ]


def _use(saved: SavedRun, origin: str) -> list[str]:
    """Returns programs that draw samples."""
    config, spec = saved.config, saved.spec
    is_own = "generator" in find_user_networks(config, saved.library.models)
    given = ', model="FILE.py"' if is_own else ""
    program = f'import wgan_gp\n\nsamples = wgan_gp.load("{origin}"{given}).sample(16)'
    parts = ["With the package `wgan-gp`:", _block(program, "python")]
    if "saved_model" not in config.export_format.split(","):
        return parts
    given = "count=tf.constant(16)"
    if spec.conditions is not None:
        dtype = spec.conditions.signature_dtype.name
        given = f"conditions=tf.constant({[spec.conditions.mean.tolist()]}, tf.{dtype})"
    elif spec.classes:
        given += ", label=tf.constant(-1)"
    return [
        *parts,
        "With TensorFlow alone, in this folder:",
        _block(
            "import tensorflow as tf\n\n"
            'draw = tf.saved_model.load("saved_model").signatures["seed"]\n'
            f'samples = draw(seed=tf.constant(0, tf.int64), {given})["samples"]',
            "python",
        ),
    ]


def _block(text: str, language: str = "text") -> str:
    """Returns a block of code, which no text can end."""
    lines = [printable(line) for line in text.split("\n")]
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return "\n".join([f"{fence}{language}", *lines, fence])
