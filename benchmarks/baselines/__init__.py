"""Implementations of WGAN-GP to compare with: modules with a `Trainer`, run as processes."""
