"""TFRecord files: the records of compressed, uncompressed and damaged files.

A record is its length (8 bytes), the checksum of the length, its content, and the checksum of the
content: https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import google_crc32c
import numpy as np
import tensorflow as tf

from ....errors import reason
from ....run_directory.files import local_path
from ..listing import size_and_time
from ..source import Unreadable

_HEADER_BYTES = 12
_CHECKSUM_BYTES = 4
_FRAME_BYTES = _HEADER_BYTES + _CHECKSUM_BYTES
_READ_BYTES = 2**18
_PART_BYTES = 2**12
_SEARCHED = 2**22  # bytes of a file in which a record must begin
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


class RecordFile(NamedTuple):
    """A TFRecord file.

    Attributes:
      path: Its path.
      size: Its size in bytes.
      time: When it was changed, in nanoseconds since 1970.
      compression: "", "GZIP" or "ZLIB".
    """

    path: str
    size: int
    time: int
    compression: str


class Record(NamedTuple):
    """A record whose content was not compared with its checksum.

    Attributes:
      content: The content, such as a serialized tf.train.Example.
      checksum: What the file says of it.
    """

    content: bytes
    checksum: int

    @property
    def is_intact(self) -> bool:
        """Is True if the content has its checksum."""
        return masked_crc32c(self.content) == self.checksum


def open_record_file(path: str) -> RecordFile | None:
    """Finds the size and the compression of a file; returns None if it has other content.

    A file without any record is empty.

    Raises:
      tf.errors.OpError, OSError: If it cannot be read.
    """
    file = RecordFile(path, *size_and_time(path), "")
    for compression in ("", "GZIP", "ZLIB"):
        with (
            _opened(path) as raw,
            _decompressed(raw, compression) as opened,
            contextlib.suppress(*_DAMAGED),
        ):
            if _is_header(opened.read(_HEADER_BYTES)):
                return file._replace(compression=compression)
    if not file.size:
        return file
    with _opened(path) as opened:  # its beginning may be damaged
        is_found = _find_header(opened, 0, min(file.size, _SEARCHED)) is not None
    return file if is_found else None


def count_records(file: RecordFile) -> int:
    """Returns the number of items of `read_records`.

    Of a file that is not compressed, only the lengths of the records are read.
    """
    return sum(1 for _ in read_records(file, skip_contents=not file.compression))


def read_records(file: RecordFile, *, skip_contents: bool = False) -> Iterator[Record | Unreadable]:
    """Yields the records of a file in their order.

    In the place of damage that hides where the next record begins, Unreadable is yielded once, and
    the next record is searched for.

    Args:
      file: The file.
      skip_contents: Whether the contents are not read, which is faster. They are empty then.

    Raises:
      tf.errors.OpError, OSError: If the file cannot be read.
    """
    place = 0
    with _opened(file.path) as raw, _decompressed(raw, file.compression) as opened:
        try:
            while header := opened.read(_HEADER_BYTES):
                length = int.from_bytes(header[:8], "little")
                end = place + length + _FRAME_BYTES
                is_cut = not file.compression and end > file.size
                if is_cut or not _is_header(header):
                    following = None
                    if not file.compression:
                        following = _find_header(opened, place + 1, file.size)
                    if following is None:
                        yield Unreadable(f"the file is damaged from byte {place:,} on")
                        return
                    yield Unreadable(
                        f"the file is damaged from byte {place:,} to byte {following:,}"
                    )
                    place = following
                    opened.seek(place)
                    continue
                if skip_contents:
                    opened.seek(end)
                    yield Record(b"", 0)
                else:
                    content, checksum = opened.read(length), opened.read(_CHECKSUM_BYTES)
                    if len(content) < length or len(checksum) < _CHECKSUM_BYTES:
                        raise EOFError("it is cut off")
                    yield Record(content, int.from_bytes(checksum, "little"))
                place = end
        except _DAMAGED as error:
            yield Unreadable(
                f"the file is damaged from byte {place:,} on: "
                f"{reason(error) or type(error).__name__}"
            )


def masked_crc32c(content: bytes) -> int:
    """Returns the checksum that TFRecord files contain, which is not that of a part of itself."""
    crc = google_crc32c.value(content)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _is_header(header: bytes) -> bool:
    """Returns True for a length with its checksum."""
    if len(header) < _HEADER_BYTES:
        return False
    return int.from_bytes(header[8:], "little") == masked_crc32c(header[:8])


def _find_header(opened: IO[bytes], begin: int, end: int) -> int | None:
    """Returns the place of the first length with its checksum, or None."""
    while begin + _HEADER_BYTES <= end:
        opened.seek(begin)
        content = np.frombuffer(opened.read(min(_READ_BYTES, end - begin)), np.uint8)
        if len(content) < _HEADER_BYTES:
            return None
        windows = np.lib.stride_tricks.sliding_window_view(content, _HEADER_BYTES)
        lengths = np.ascontiguousarray(windows[:, :8]).view("<u8")[:, 0]
        # Few places have a length that is possible, so that few checksums are computed.
        for place in np.flatnonzero((lengths > 0) & (lengths < end - begin)):
            if _is_header(windows[place].tobytes()):
                return begin + int(place)
        begin += len(windows)
    return None


def _opened(path: str) -> Any:
    """Opens a file for reading."""
    local = local_path(path)
    return open(local, "rb") if local is not None else tf.io.gfile.GFile(path, "rb")


@contextlib.contextmanager
def _decompressed(file: Any, compression: str) -> Iterator[Any]:
    if compression == "GZIP":
        with gzip.GzipFile(fileobj=file, mode="rb") as opened:
            yield opened
    elif compression == "ZLIB":
        yield io.BufferedReader(_ZlibReader(file), _READ_BYTES)
    else:
        yield file


class _ZlibReader(io.RawIOBase):
    """The decompressed content of a file."""

    def __init__(self, file: Any):
        self._file = file
        self._decompressor = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = b""
        while not part and not self._decompressor.eof:
            # In small parts, because an error of zlib loses what was decompressed before it.
            more = self._decompressor.unconsumed_tail or self._file.read(_PART_BYTES)
            part = self._decompressor.decompress(more, len(buffer))
            if not more and not part:
                raise EOFError("it is cut off")
        buffer[: len(part)] = part
        return len(part)
