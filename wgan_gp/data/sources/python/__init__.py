"""Examples that a program passes from Python: arrays, DataFrames and tf.data streams."""
