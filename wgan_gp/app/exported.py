"""The files of an export, from which `wgan_gp.load` builds the networks again.

They may come from another person. They contain no code and no path, and every value is checked.
"""

from __future__ import annotations

import dataclasses
import functools
import posixpath
from typing import Any

import tensorflow as tf

from .. import losses
from ..config import PYTHON, Config, as_text
from ..data.data_record import DataRecord
from ..data.spec import DataSpec
from ..errors import UserError, printable
from ..evaluation import results
from ..inference import export, weights
from ..inference.pictures import overview, sample_sheet
from ..run_directory.files import convert_file_errors
from ..run_directory.json_files import read_object, to_text
from ..run_directory.typed_json import load_dataclass
from .saved_run import RestoredRun, SavedRun, is_dataset_name
from .user_code.network_checks import find_user_networks

CONFIG, DATA = "config.json", "data.json"
WEIGHTS, CRITIC = "generator.npz", "critic.npz"
REMEDY = "export or download it again"
# What only the critic needs; "model" has another value for it.
_CRITIC_SETTINGS = {"model", "critic_normalization", "critic_pooling", "minibatch_stddev"}
# The settings from which the generator is built, and the seed of its samples.
_SETTINGS = {
    "seed",
    "model",
    *(
        field.name
        for field in dataclasses.fields(Config)
        if field.metadata["kind"] == "networks" and field.name not in _CRITIC_SETTINGS
    ),
}
_CARD = """\
---
# Add a line with the license of your model, such as "license: apache-2.0".
library_name: wgan-gp
tags: [wgan-gp, gan, tensorflow]
---
![Samples](samples.png)

`wgan_gp.load("FOLDER").sample(16)` draws samples. The data, the changed settings and the metrics:

"""


def write_export(folder: str, saved: SavedRun, run: RestoredRun) -> None:
    """Writes both networks of a run, its generator for `wgan_gp.load` and the model card.

    Args:
      folder: The folder of the export.
      saved: The run.
      run: Its networks, created under the default strategy.
    """
    config, state = saved.config, run.state
    export.write(
        folder,
        state.sampling_generator,
        state.critic,
        latent_size=saved.spec.latent_size(config.latent_size),
        spec=saved.spec,
        score=losses.score,
        labeled_critic=config.critic_takes_labels,
        files=files_of(saved, run) | model_card(saved, run),
    )


def files_of(saved: SavedRun, run: RestoredRun) -> dict[str, bytes | str]:
    """Returns the content of the files of a run's generator, by name.

    Args:
      saved: The run.
      run: Its networks.
    """
    config = saved.config
    own = find_user_networks(config, saved.library.models)
    # Not the path of the file
    name = PYTHON if "generator" in own else config.generator_model or config.model
    settings = {name: getattr(config, name) for name in sorted(_SETTINGS)}
    settings |= {"model": name, "generator_model": name}
    of_critic = {name: getattr(config, name) for name in sorted(_CRITIC_SETTINGS)}
    of_critic["model"] = PYTHON if "critic" in own else config.model
    # The fingerprint of the data does not concern other people, nor do all of its conditions.
    conditions = None if saved.spec.conditions is None else saved.spec.conditions.recorded()
    record = DataRecord(dataclasses.replace(saved.spec, conditions=conditions), size=saved.size)
    return {
        CONFIG: to_text({**settings, "critic": of_critic}),
        DATA: to_text(record),
        WEIGHTS: weights.pack(run.state.sampling_generator),
        CRITIC: weights.pack(run.state.critic),
    }


def model_card(saved: SavedRun, run: RestoredRun) -> dict[str, bytes | str]:
    """Returns the content of the model card and its picture, by the names of the files.

    The card is README.md, with the header that model hubs read. Names of the data and values of
    settings stand in an indented block, which they cannot leave. It contains no path.
    """
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
    card = _CARD + "".join(f"    {printable(line)}\n" for line in lines)
    return {"README.md": card, "samples.png": tf.io.encode_png(picture).numpy()}


def read_settings(folder: str, seed: int | None) -> tuple[Config, Config, DataSpec]:
    """Returns the configurations of a generator and of its critic, and the data.

    Raises:
      UserError: If the folder contains no generator, or a file is damaged.
    """
    path, data_path = posixpath.join(folder, CONFIG), posixpath.join(folder, DATA)
    content = _read(folder, path)
    of_critic = content.get("critic")
    if not isinstance(of_critic, dict) or not isinstance(of_critic.get("model"), str):
        raise UserError(
            f"{path} is not that of an export",
            "give a folder that --mode=export wrote, such as exported/ in the run directory",
        )
    settings = {name: value for name, value in content.items() if name in _SETTINGS}
    config = load_dataclass(Config, settings, path, REMEDY)
    if None in (config.model, config.generator_width) or config.model != config.generator_model:
        raise UserError(f"{path} does not describe a generator", REMEDY)
    for name in _CRITIC_SETTINGS & set(of_critic):
        settings[name] = of_critic[name]
    critic = load_dataclass(Config, settings, path, REMEDY)
    spec = load_dataclass(DataRecord, _read(folder, data_path), data_path, REMEDY).spec
    return (config if seed is None else dataclasses.replace(config, seed=seed)), critic, spec


def _read(folder: str, path: str) -> dict[str, Any]:
    with convert_file_errors(path, "read", "check the path"):
        content = read_object(path, remedy=REMEDY)
    if content is None:
        raise UserError(
            f"{folder} contains no generator ({posixpath.basename(path)} is missing)",
            "give a folder that --mode=export wrote",
        )
    return content
