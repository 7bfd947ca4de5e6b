"""The networks' state, the critic and generator steps, and the loops around them."""
