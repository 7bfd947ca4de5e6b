"""The checksum of TFRecord files: CRC-32C (RFC 3720, B.4), computed by NumPy in any thread."""

from __future__ import annotations

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # with the lowest bit first
_ONES = 0xFFFFFFFF
_BLOCK = 1024  # bytes that are looked up at once, in a table of 1 MB


def crc32c(content: bytes) -> int:
    """Returns the CRC-32C of bytes.

    A CRC is linear: it is the exclusive or of what each byte contributes at its distance from the
    end. Zeros before the content contribute nothing, and the initial state of ones inverts the
    first four bytes.
    """
    size = len(content)
    padded = np.zeros(-(-max(1, size) // _BLOCK) * _BLOCK, np.uint8)
    begin = len(padded) - size
    padded[begin:] = np.frombuffer(content, np.uint8)
    padded[begin : begin + 4] ^= 0xFF
    state = 0
    first, second, third, fourth = _shifts()
    for block in _crcs_of_blocks(padded):
        shifted = first[state & 255] ^ second[(state >> 8) & 255]
        state = block ^ shifted ^ third[(state >> 16) & 255] ^ fourth[state >> 24]
    # Of the ones, those that the content is too short to reach are left.
    return state ^ (_ONES >> (8 * size)) ^ _ONES


def masked_crc32c(content: bytes) -> int:
    """Returns the checksum that TFRecord files contain, which is not that of a part of itself."""
    crc = crc32c(content)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & _ONES


def masked_crc32c_of_windows(content: np.ndarray, size: int) -> np.ndarray:
    """Returns the checksums of all windows of 4 to 1024 bytes.

    Args:
      content: `[N]` uint8.
      size: The size S of a window.

    Returns:
      `[N - S + 1]` uint32.
    """
    count = len(content) - size + 1
    table = _contributions().reshape(_BLOCK, 256)[-size:]
    crc = np.full([count], _ONES, np.uint32)
    for place in range(size):
        window = content[place : place + count]
        crc ^= table[place].take(window ^ np.uint8(0xFF) if place < 4 else window)
    return ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)


def _crcs_of_blocks(padded: np.ndarray) -> list[int]:
    places = np.arange(_BLOCK, dtype=np.intp) * 256
    indices = places + padded.reshape(-1, _BLOCK)
    return np.bitwise_xor.reduce(_contributions().take(indices), axis=1).tolist()


@functools.cache
def _contributions() -> np.ndarray:
    """Returns what each byte contributes at each place of a block, `[_BLOCK * 256]` uint32."""
    table = np.empty([_BLOCK, 256], np.uint32)
    row: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(_POLYNOMIAL), row >> 1).astype(np.uint32)
    table[-1] = last = row
    for place in range(_BLOCK - 2, -1, -1):
        row = (row >> 8) ^ last[row & 255]
        table[place] = row
    return table.reshape(-1)


@functools.cache
def _shifts() -> list[list[int]]:
    """Returns what each byte of the state contributes after another block."""
    return _contributions().reshape(_BLOCK, 256)[:4].tolist()
