"""The user's networks, dataset, objective and writers: imports, creates and checks them."""
