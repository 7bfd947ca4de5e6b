"""Decoded examples on a disk or in a bucket: built once from a source, read by their indices."""
