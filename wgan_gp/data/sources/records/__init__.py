"""Examples in TFRecord files, and datasets that tensorflow-datasets prepared."""
