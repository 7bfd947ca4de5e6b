"""Ways to train a WGAN-GP, each a module with a `Trainer`, each run in a process of its own."""
