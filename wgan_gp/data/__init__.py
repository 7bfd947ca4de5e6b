"""What to learn from: datasets by name, and the pipeline that feeds the replicas."""
