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

from ..config import CODE_SETTINGS, Config, as_text
from ..data.spec import DataSpec, count_of
from ..errors import printable
from ..evaluation import results
from ..inference.pictures import overview, sample_sheet
from .library import Registry
from .saved_config import is_dataset_name
from .saved_run import RestoredRun, SavedRun
from .user_code import loading

CARD = "README.md"
PICTURE = "samples.png"
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


def files_of(saved: SavedRun, run: RestoredRun) -> dict[str, bytes | str]:
    """Returns the content of the model card and its picture, by the names of the files.

    Args:
      saved: The run.
      run: Its networks.
    """
    spec = saved.spec
    draw = functools.partial(overview, scaling=spec.scaling)
    picture = sample_sheet(run.sampler, len(spec.example_shape), draw)
    return {CARD: _card(saved, run), PICTURE: tf.io.encode_png(picture).numpy()}


def _card(saved: SavedRun, run: RestoredRun) -> str:
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
        "one generator step. These settings differ from the defaults:",
        _block("\n".join(_settings(config, saved.library.models)) or "(none)"),
    ]
    with saved.directory.convert_file_errors("read"):
        metrics = results.recorded_table(saved.directory, run.iteration)
    if metrics is not None:
        parts += ["## Metrics", _block(metrics)]
    parts += ["## Use", *_use(config, spec)]
    return "\n\n".join(parts) + "\n"


def _network(saved: SavedRun, run: RestoredRun) -> str:
    """Returns a sentence about the generator."""
    config, spec, models = saved.config, saved.spec, saved.library.models
    name = config.generator_model or config.model
    origin = "code of the author" if loading.is_user_code("model", name, models) else f"`{name}`"
    average = run.state.generator_average
    weights = sum(math.prod(weight.shape) for weight in run.state.sampling_generator.weights)
    inputs = [f"latent vectors of length {config.latent_size}, drawn from N(0, I),"]
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
    return config.dataset if is_dataset_name(config.dataset) else "data of the author"


def _settings(config: Config, models: Registry) -> list[str]:
    """Returns the settings that describe the run and differ from their defaults, as flags."""
    found = []
    for field in dataclasses.fields(config):
        name, value, declared = field.name, getattr(config, field.name), field.metadata
        is_described = declared["affects"] in _DESCRIBED and declared["of_run"] is True
        is_code = name in CODE_SETTINGS and loading.is_user_code(name, value, models)
        if name == "dataset" and not is_dataset_name(value):
            is_code = True
        if is_described and not is_code and value != field.default:
            found.append(f"--{name}={as_text(value)}")
    return found


def _use(config: Config, spec: DataSpec) -> list[str]:
    """Returns programs that draw samples."""
    if "saved_model" not in config.export_format.split(","):
        return [f"The files of the generator have the format {config.export_format}."]
    given = "count=tf.constant(16)"
    if spec.conditions is not None:
        dtype = spec.conditions.signature_dtype.name
        given = f"conditions=tf.constant({[spec.conditions.mean.tolist()]}, tf.{dtype})"
    elif spec.classes:
        given += ", label=tf.constant(-1)"
    return [
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
