"""Single pictures of a source, read without TensorFlow, as processes that only decode need it."""

from __future__ import annotations

import dataclasses
import os
import posixpath
from typing import NamedTuple

from ....errors import naming
from ..source import Example, Unreadable
from . import decoding as pictures
from .forms import Form

MAX_BYTES = 2**30  # of a file; an archive of a few kilobytes can declare more


class Picture(NamedTuple):
    """A picture of a source.

    Attributes:
      name: Its name for messages, which is its path in the folder of a `PictureDecoder`.
      label: The number of its class.
      content: Its file; None if the file is in the folder.
    """

    name: str
    label: int
    content: bytes | None = None


@dataclasses.dataclass(frozen=True)
class PictureDecoder:
    """Decodes the pictures of a source; see `Source.decoder`.

    Attributes:
      origin: The flag and its value, for messages.
      form: The form into which pictures are decoded.
      folder: The local folder of pictures without content.
    """

    origin: str
    form: Form
    folder: str | None = None

    def __call__(self, picture: Picture) -> Example:
        """Decodes a picture; see `Source.read`."""
        content = picture.content
        if content is None:
            assert self.folder is not None
            content = read_local(posixpath.join(self.folder, picture.name))
        with naming(f"{self.origin}: {picture.name}"):
            return Example(pictures.decode(content, self.form), picture.label)


def read_local(path: str, count: int = -1) -> bytes:
    """Returns the content of a local file, or its first `count` bytes.

    Raises:
      Unreadable: If it cannot be read, or has more than MAX_BYTES.
    """
    try:
        with open(path, "rb", buffering=0) as file:  # a buffer would double the time
            check_size(os.fstat(file.fileno()).st_size)
            return file.read(count) or b""
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def check_size(size: int) -> None:
    """Raises Unreadable if a file has more than MAX_BYTES."""
    if size > MAX_BYTES:
        raise Unreadable(f"it has {size / 2**30:.1f} GiB")
