"""The scaling of examples and conditions to the range of the networks, and back."""
