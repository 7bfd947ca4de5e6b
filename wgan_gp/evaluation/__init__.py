"""Evaluation metrics that compare samples with the data."""
