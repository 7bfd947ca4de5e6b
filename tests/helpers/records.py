"""Writes TFRecord files of tf.train.Example."""

import tensorflow as tf


def feature(value):
    """Returns the feature of bytes, a number, a list of these, or no value."""
    if isinstance(value, tf.train.Feature):
        return value
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def write_records(path, examples, compression=""):
    """Writes examples, which are dictionaries of the values of their features."""
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression)) as writer:
        for example in examples:
            features = {name: feature(value) for name, value in example.items()}
            content = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(content.SerializeToString())
    return str(path)
