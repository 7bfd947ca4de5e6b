"""Decodes pictures once into a folder of arrays, on which --dataset=array trains.

python -m wgan_gp.data.prepare SOURCE OUT --image_size=64
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from ..config import DataSettings
from ..errors import UserError
from ..run_directory.files import local_path
from ..runtime.streams import show_log_lines
from .sources.listing import reading
from .sources.pictures.folder import find_source
from .store.building import build, size_text


def main(arguments: list[str]) -> int:
    """Runs the program and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wgan_gp.data.prepare", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("source", help="folder or archive of pictures, local or gs://")
    parser.add_argument("out", help="new folder for the arrays, local or gs://")
    parser.add_argument("--image_size", help="as in training: a number of pixels, or HxW")
    parser.add_argument("--image_channels", type=int, help="as in training: 1 to 4")
    parser.add_argument("--crop", default="center", help="as in training: center or none")
    parser.add_argument("--split", default="train", help="as in training; default: train")
    given = parser.parse_args(arguments)
    show_log_lines()
    try:
        settings = DataSettings(
            dataset="image_folder",
            data_dir=given.source,
            image_size=given.image_size,
            image_channels=given.image_channels,
            crop=given.crop,
            split=given.split,
        )
        with reading(given.source):
            # A link to an empty folder on a larger disk is followed.
            local = local_path(given.out)
            out = given.out.rstrip("/") if local is None else os.path.realpath(local)
            store = build(find_source(settings, "SOURCE"), out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    record = store.record
    classes = "" if store.class_names is None else f" in {len(store.class_names)} classes"
    shape = "x".join(map(str, record.shape))
    print(
        f"wrote {len(store):,} pictures of {shape}{classes}, "
        f"{size_text(len(store) * record.example_bytes)}; to train on them, use"
    )
    print(f"  --dataset=array --data_dir={shlex.quote(given.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
