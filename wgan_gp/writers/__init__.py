"""Writers of scalars, images and text: files, TensorBoard, the terminal, memory."""
