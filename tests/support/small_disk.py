"""File systems of a few megabytes, to be filled."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEGABYTE = 1 << 20
PAGE = 4096


class SmallDisk:
    """A file system, and a file that takes its space."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def leave(self, free_bytes: int | None) -> None:
        """Leaves this much free space; None: all of it."""
        self._ballast.unlink(missing_ok=True)
        if free_bytes is None:
            return
        with self._ballast.open("wb", buffering=0) as file:
            size = PAGE * 16
            while size:
                try:
                    file.write(bytes(size))
                    os.fsync(file.fileno())
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size = size // 2 if size > 512 else 0
            file.truncate(max(0, os.fstat(file.fileno()).st_size - free_bytes))


@contextmanager
def mounted(kind: str, directory: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mounts a file system; `kind` is tmpfs or ext4 (in a file). Skips the test where mounting is not permitted."""
    root = directory / "disk"
    root.mkdir(parents=True)
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(root)]
    if kind == "ext4":
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("needs mkfs.ext4")
        image = directory / "image"
        image.write_bytes(b"")
        os.truncate(image, size_bytes)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", image], check=True, capture_output=True)
        command = ["mount", "-o", "loop", str(image), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True, capture_output=True)
