"""Training with Keras's `fit`: the methods, arguments and networks of `wgan_gp.keras.WGANGP`."""
