"""The model card of an export: README.md, with the header that model hubs read, and a picture.

Names of the data and values of settings stand in an indented block, which they cannot leave. The
card contains no path.
"""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf

from ..config import PYTHON, as_text
from ..errors import printable
from ..evaluation import results
from ..inference.pictures import overview, sample_sheet
from .saved_config import is_dataset_name
from .saved_run import RestoredRun, SavedRun
from .user_code.network_checks import find_user_networks

_TEXT = """\
---
# Add a line with the license of your model, such as "license: apache-2.0".
library_name: wgan-gp
tags: [wgan-gp, gan, tensorflow]
---
![Samples](samples.png)

`wgan_gp.load("FOLDER").sample(16)` draws samples. The data, the changed settings and the metrics:

"""


def files_of(saved: SavedRun, run: RestoredRun) -> dict[str, bytes | str]:
    """Returns the content of the model card and its picture, by the names of the files."""
    config, spec = saved.config, saved.spec
    own = find_user_networks(config, saved.library.models)
    hidden = {"model" if role == "critic" else "generator_model" for role in own}
    hidden.add("seed")  # an export may have another one, that of its samples
    of_run = config.of_run
    data = config.dataset
    if data == PYTHON or not is_dataset_name(data):
        hidden.add("dataset")
        data = "data of the author"
    lines = [f"{data}: {spec.describe(saved.size)}", f"{run.iteration} iterations"]
    for field in dataclasses.fields(config):
        value = of_run.get(field.name, field.default)
        is_shown = field.metadata["kind"] in ("data", "networks", "training")
        if is_shown and field.name not in hidden and value != field.default:
            lines.append(f"--{field.name}={as_text(value)}")
    with saved.directory.convert_file_errors("read"):
        lines += (results.recorded_table(saved.directory, run.iteration) or "").splitlines()
    draw = functools.partial(overview, units=spec.units)
    picture = sample_sheet(run.sampler, len(spec.example_shape), draw)
    card = _TEXT + "".join(f"    {printable(line)}\n" for line in lines)
    return {"README.md": card, "samples.png": tf.io.encode_png(picture).numpy()}
