"""Samples of a trained generator, as images and files, and its export."""
