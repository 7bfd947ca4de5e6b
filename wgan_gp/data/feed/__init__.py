"""Feeds examples to the replicas: their order, and the batches of each loop."""
