"""Compiling for a TPU slice on a machine that has none; docs/compile.md says how it works."""
