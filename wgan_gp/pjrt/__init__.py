"""The loop of a run as one XLA program, executed by jax's PJRT client; see docs/pjrt.md."""

from ..runtime.tpu_machine import installed_versions

# The versions with which client.py was tested. It uses private names, which others may lack.
REQUIRED = {"jax": "0.10.2", "jaxlib": "0.10.2"}
INSTALL = "pip install " + " ".join(f"{name}=={version}" for name, version in REQUIRED.items())

INSTALL_GPU = f'pip install "jax[cuda12]=={REQUIRED["jax"]}"'


def has_tpu_of_jax(tpu: str) -> bool:
    """Returns True if --tpu names the TPU of this machine, which jax can use but TensorFlow cannot.

    Args:
      tpu: The value of --tpu.
    """
    installed = installed_versions(["tensorflow-tpu", "jax", "libtpu"])
    return tpu == "local" and "tensorflow-tpu" not in installed and len(installed) == 2
