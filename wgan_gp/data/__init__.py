"""Datasets by name, and the input pipeline that feeds the replicas."""
