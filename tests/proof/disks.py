"""A disk of one's own, in a file: what is in the file is what reached the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.proof.program import NotHere

BLOCK = 64 * 1024
PATIENCE = 20.0  # seconds


class Disk:
    """``path``: where it is mounted."""

    def __init__(self, image: Path, path: Path) -> None:
        self._image = image
        self.path = path
        self._ballast = path / "ballast"

    def mount(self) -> None:
        """Raises NotHere."""
        self.path.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-o", "loop", self._image, self.path], capture_output=True, check=False)
        if done.returncode != 0:
            raise NotHere(f"no disk in a file can be mounted here ({done.stderr.decode(errors='replace').strip()})")
        self.path.chmod(0o711)  # a database's own account looks for its folder in it

    def unmount(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(["umount", self.path], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(done.stderr)
            time.sleep(0.1)  # who was killed has not let go of it yet

    def flush(self) -> None:
        subprocess.run(["sync", "--file-system", self.path], check=True)

    def cut(self) -> Path:
        """The power is cut: what is on the disk now."""
        left = self._image.with_suffix(".cut")
        shutil.copyfile(self._image, left)
        return left

    def replace(self, image: Path) -> None:
        """The machine comes back with what was left. Nothing may be open on the former."""
        self.unmount()
        image.replace(self._image)
        self.mount()

    def fill(self, *, but: int) -> None:
        """Until at most so many bytes are free."""
        with self._ballast.open("ab") as ballast:
            while self.free() > but:
                ballast.write(bytes(min(BLOCK, self.free() - but)))
                ballast.flush()
            os.fsync(ballast.fileno())

    def make_room(self) -> None:
        self._ballast.unlink()

    def free(self) -> int:
        return shutil.disk_usage(self.path).free


@contextmanager
def disk(folder: Path, *, megabytes: int) -> Iterator[Disk]:
    """Mounted, with ext4 on it. Raises NotHere where that needs what this machine, or this account, does not have."""
    if os.geteuid() != 0:
        raise NotHere("only root may mount a disk")
    if missing := [name for name in ("mkfs.ext4", "mount", "umount", "sync") if shutil.which(name) is None]:
        raise NotHere(f"there is no {' and no '.join(missing)} here")
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True, capture_output=True)
    made = Disk(image, folder / "disk")
    made.mount()
    try:
        yield made
    finally:
        subprocess.run(["umount", "--lazy", made.path], check=False, capture_output=True)
        image.unlink()
