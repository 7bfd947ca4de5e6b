"""How good samples are: figures that compare them with the data."""
