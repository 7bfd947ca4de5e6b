"""Uses of trained networks: samples, pictures, scores and exports.

`sampling` draws samples, `pictures` shows them (by `images` and `plots`), and `sample_files` writes
them. `scoring` scores examples, and `export` writes the networks for other programs.
"""
