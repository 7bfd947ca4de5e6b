"""The orientation of a JPEG, which cameras record in its Exif metadata (tag 0x0112)."""

from __future__ import annotations

import tensorflow as tf

UPRIGHT = 1  # the orientation of an image without the tag
_TAG = 0x0112
_ENTRY_BYTES = 12  # of a TIFF directory
_HEAD_BYTES = 8  # marker, length and the beginning of a segment's content
_EXIF = [ord(character) for character in "Exif"]
_MAX_SEGMENTS = 64


def find_orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the orientation of a JPEG, scalar int32 in 1 ... 8; 1 if it has no valid tag."""
    # The usual file without metadata needs no search, which would take as long as decoding a small
    # image: a JFIF segment of 16 bytes, and then the quantization tables.
    begin = tf.strings.substr(encoded, 2, 4)
    after_jfif = tf.strings.substr(encoded, tf.minimum(20, tf.strings.length(encoded)), 2)
    is_plain = (begin == b"\xff\xe0\x00\x10") & (after_jfif == b"\xff\xdb")
    return tf.cond(is_plain, lambda: tf.constant(UPRIGHT), lambda: _search_exif(encoded))


# Not inlined, because the nodes would be pruned and scheduled for every image of other formats.
@tf.function(
    input_signature=[tf.TensorSpec([], tf.string)],
    experimental_attributes={"_noinline": True},
    autograph=False,
)
def _search_exif(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the orientation in the Exif segment of a JPEG; 1 if there is none.

    Only TensorFlow reads the file, because the machines of a remote TPU cannot call Python.
    """

    def is_skipped(place: tf.Tensor, head: tf.Tensor) -> tf.Tensor:
        # The segments before the image are APP0 ... APP15 and comments.
        is_segment = (head[0] == 0xFF) & ((head[1] // 16 == 0xE) | (head[1] == 0xFE))
        return is_segment & ~_is_exif(head)

    def next_segment(place: tf.Tensor, head: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        place += 2 + tf.maximum(_length(head), 2)
        return place, _bytes_at(encoded, place, _HEAD_BYTES)

    first = tf.constant(2)  # after the marker of a JPEG
    place, head = tf.while_loop(
        is_skipped,
        next_segment,
        (first, _bytes_at(encoded, first, _HEAD_BYTES)),
        maximum_iterations=_MAX_SEGMENTS,
    )
    return tf.cond(
        _is_exif(head),
        lambda: _read_tag(_bytes_at(encoded, place + 10, tf.maximum(_length(head) - 8, 8))),
        lambda: tf.constant(UPRIGHT),
    )


def is_transposed(orientation: tf.Tensor) -> tf.Tensor:
    """Returns True if the rows of the stored image are the columns of the upright one."""
    return orientation >= 5


def make_upright(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Returns an image `[H, W, C]` as it is to be seen, as PIL.ImageOps.exif_transpose does."""
    image = tf.cond(
        is_transposed(orientation), lambda: tf.transpose(image, [1, 0, 2]), lambda: image
    )
    is_mirrored, is_upside_down = (
        tf.reduce_any(orientation == tf.constant(values)) for values in ([2, 3, 6, 7], [3, 4, 7, 8])
    )
    image = tf.cond(is_mirrored, lambda: image[:, ::-1], lambda: image)
    return tf.cond(is_upside_down, lambda: image[::-1], lambda: image)


def _is_exif(head: tf.Tensor) -> tf.Tensor:
    is_app1 = (head[0] == 0xFF) & (head[1] == 0xE1)
    return is_app1 & tf.reduce_all(head[4:8] == tf.constant(_EXIF))


def _length(head: tf.Tensor) -> tf.Tensor:
    return head[2] * 256 + head[3]


def _bytes_at(encoded: tf.Tensor, place: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Returns `count` bytes as int32; after the end of the file, they are 0."""
    start = tf.minimum(place, tf.strings.length(encoded))
    found = tf.io.decode_raw(tf.strings.substr(encoded, start, count), tf.uint8)
    return tf.pad(tf.cast(found, tf.int32), [[0, count - tf.size(found)]])


def _read_tag(content: tf.Tensor) -> tf.Tensor:
    """Returns the orientation in the content of an Exif segment, which is a TIFF file.

    Args:
      content: The bytes from the byte order on, int32, at least 8.
    """
    is_big_endian = content[0] == ord("M")

    def joined(high: tf.Tensor, low: tf.Tensor) -> tf.Tensor:
        return tf.where(is_big_endian, high * 256 + low, low * 256 + high)

    size = tf.size(content)
    # A larger offset is beyond the end of a segment, which has less than 2^16 bytes.
    is_near = tf.where(is_big_endian, content[4] + content[5], content[6] + content[7]) == 0
    offset = tf.where(is_big_endian, joined(content[6], content[7]), joined(content[4], content[5]))
    offset = tf.where(is_near & (offset + 2 <= size), offset, size - 2)
    count = tf.minimum(
        joined(content[offset], content[offset + 1]), (size - offset - 2) // _ENTRY_BYTES
    )
    entries = content[offset + 2 : offset + 2 + count * _ENTRY_BYTES]
    words = tf.reshape(entries, [-1, _ENTRY_BYTES // 2, 2])
    words = joined(words[:, :, 0], words[:, :, 1])
    # A directory's entry: tag, type, count (two words), value (two words).
    found = tf.reduce_max(tf.concat([[0], tf.where(words[:, 0] == _TAG, words[:, 4], 0)], axis=0))
    return tf.where((found >= 1) & (found <= 8), found, UPRIGHT)
