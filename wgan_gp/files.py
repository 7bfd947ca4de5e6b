"""Files that are written whole or not at all."""

import tensorflow as tf


def replace_text(path: str, text: str) -> None:
    """Writes a file whole or not at all: a reader, or a crash, finds the old or the new one."""
    aside = f"{path}.new"
    with tf.io.gfile.GFile(aside, "w") as file:
        file.write(text)
    tf.io.gfile.rename(aside, path, overwrite=True)
