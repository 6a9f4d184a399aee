"""A network of one's own, with loopback only, where the machine allows it."""

import shutil
import subprocess

import pytest


def alone(command: list[str]) -> list[str]:
    """The command in a network namespace of its own, where there is only loopback."""
    return ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]


def may_unshare() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(alone(["true"]), capture_output=True).returncode == 0


needs_namespace = pytest.mark.skipif(
    not may_unshare(), reason="no network namespace of one's own here (unshare -n, ip link)"
)
