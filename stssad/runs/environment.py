"""With what a run was made: versions and machine."""

import platform
from typing import Any

from ..version import __version__


def environment() -> dict[str, Any]:
    """For a run's metadata."""
    from importlib.metadata import version

    packages = ("torch", "numpy", "scipy", "scikit-learn", "pillow", "safetensors")
    return {
        "stssad": __version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "packages": {name: version(name) for name in packages},
    }
