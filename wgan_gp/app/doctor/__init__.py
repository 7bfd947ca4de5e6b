"""`--mode=doctor`: checks of this machine, its software, a TPU and buckets."""
