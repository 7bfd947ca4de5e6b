"""Arrays in files: .npy, .npz, .h5, .mat, and folders of them."""
