"""The loop of a run as one XLA program, executed by jax's PJRT client; see docs/pjrt.md."""

import os
import pathlib

from ..runtime.tpu_machine import find_chips, installed_versions

# The versions with which client.py was tested. It uses private names, which others may lack.
REQUIRED = {"jax": "0.10.2", "jaxlib": "0.10.2"}
INSTALL = "pip install " + " ".join(f"{name}=={version}" for name, version in REQUIRED.items())

INSTALL_GPU = f'pip install "jax[cuda12]=={REQUIRED["jax"]}"'

CUDA_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")


def has_nvidia_gpu(root: str = "/") -> bool:
    """Returns True if this machine has a GPU of NVIDIA that CUDA_VISIBLE_DEVICES does not hide.

    Args:
      root: The root of the file system; replaceable by tests.
    """
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    return not is_hidden and any(pathlib.Path(root, "dev").glob("nvidia[0-9]*"))


def has_tpu_of_jax(tpu: str, root: str = "/") -> bool:
    """Returns True if --tpu names the TPU of this machine, which jax can use but TensorFlow cannot.

    Args:
      tpu: The value of --tpu.
      root: The root of the file system; replaceable by tests.
    """
    installed = installed_versions(["tensorflow-tpu", "jax", "libtpu"])
    only_jax = "tensorflow-tpu" not in installed and len(installed) == 2
    return tpu == "local" and only_jax and bool(find_chips(root))
