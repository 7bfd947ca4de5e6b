"""Lists and deletes the decoded examples that --data_cache keeps.

python -m wgan_gp.data.stores
python -m wgan_gp.data.stores --delete KEY
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from ..errors import UserError, printable
from ..run_directory.files import convert_file_errors
from ..runtime.streams import show_log_lines
from .store.building import size_text
from .store.cache import Listed, cache_folder, list_stores
from .store.store import delete_store


def main(arguments: list[str]) -> int:
    """Runs the program and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wgan_gp.data.stores", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--data_cache", help="folder of the stores; default: that of training (docs/data.md)"
    )
    parser.add_argument(
        "--delete", action="append", default=[], metavar="KEY", help="delete a store; repeatable"
    )
    parser.add_argument("--delete_all", action="store_true", help="delete all stores")
    given = parser.parse_args(arguments)
    show_log_lines()
    folder = cache_folder(given.data_cache)
    if folder is None:
        parser.error("there is no folder of stores — give --data_cache=FOLDER")
    try:
        with convert_file_errors(folder, "read", "check the path and its permissions"):
            _run(folder, given.delete, delete_all=given.delete_all)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _run(folder: str, keys: Sequence[str], *, delete_all: bool) -> None:
    """Lists all stores, or deletes some.

    Raises:
      UserError: If a key is unknown. Nothing is deleted then.
    """
    found = {each.name: each for each in list_stores(folder)}
    if unknown := [key for key in keys if key not in found]:
        raise UserError(
            f"--delete={unknown[0]} is not a store in {folder}", "give a key of the list"
        )
    deleted = list(found) if delete_all else list(dict.fromkeys(keys))
    for name in deleted:
        delete_store(found[name].path)
        print(f"deleted {_line(found[name])}")
    if deleted:
        return
    for each in found.values():
        print(_line(each))
    total = sum(each.bytes for each in found.values())
    print(f"{folder}: {len(found)} store{'' if len(found) == 1 else 's'}, {size_text(total)}")


def _line(store: Listed) -> str:
    """Returns the key, the date, the size and the content of a store."""
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(store.modified))
    content = "damaged"
    if store.record is not None:
        shape = "x".join(map(str, store.record.shape))
        if store.record.encoding:
            shape += f" as {store.record.encoding.upper()}"
        state = "" if store.record.complete else "incomplete, "
        content = f"{state}{store.record.size:,} of {shape} from {printable(store.record.origin)}"
    return f"{store.name}  {date}  {size_text(store.bytes)}  {content}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
