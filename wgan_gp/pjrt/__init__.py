"""The loop of a run as one XLA program, executed by jax's PJRT client; see docs/tpu.md."""
