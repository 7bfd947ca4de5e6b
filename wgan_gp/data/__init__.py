"""Datasets by name: sources read files, and feeds give examples to the replicas."""
