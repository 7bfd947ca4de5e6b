"""The loop of a run as one XLA program, executed by jax's PJRT client; see docs/pjrt.md."""

import os
import pathlib

# The versions with which client.py was tested. It uses private names, which others may lack.
REQUIRED = {"jax": "0.10.2", "jaxlib": "0.10.2"}
# --mode=compile requires this libtpu, because its estimates depend on it. jax[tpu] would install
# another.
LIBTPU = {"libtpu": "0.0.51"}
INSTALL = "pip install " + " ".join(f"{name}=={version}" for name, version in REQUIRED.items())
INSTALL_TPU = f"run make setup-tpu, or {INSTALL} libtpu=={LIBTPU['libtpu']}"
INSTALL_GPU = f'run make setup-gpu, or pip install "jax[cuda12]=={REQUIRED["jax"]}"'

CUDA_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")


def has_nvidia_gpu(root: str = "/") -> bool:
    """Returns True if this machine has a GPU of NVIDIA that CUDA_VISIBLE_DEVICES does not hide.

    Args:
      root: The root of the file system; replaceable by tests.
    """
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    return not is_hidden and any(pathlib.Path(root, "dev").glob("nvidia[0-9]*"))


def programs_folder() -> str | None:
    """Returns the folder of compiled programs, or None if the user has none; imports TensorFlow."""
    from ..data.store.opening import cache_folder  # noqa: PLC0415

    folder = cache_folder(None)
    return None if folder is None else os.path.join(folder, "programs")
