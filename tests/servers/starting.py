"""How a test gets a server that may not be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from satchel.servers import ServerMissing


def start_or_skip(start: Callable[[], None], package: str) -> None:
    """Installs Debian's package if it is missing and may be installed. Else the test is skipped, and in CI it fails."""
    try:
        start()
    except ServerMissing as missing:
        if not _install(package):
            if os.environ.get("CI") == "true":
                pytest.fail(f"the CI tests all stores: {missing}", pytrace=False)
            pytest.skip(str(missing))
        start()


def _install(package: str) -> bool:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    command = ["apt-get", "install", "--yes", "--no-install-recommends", package]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
