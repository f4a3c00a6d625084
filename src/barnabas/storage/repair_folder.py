"""A folder for the files and bytes that a repair removes from a partition's directory."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.common.host import Disk


class RepairFolder:
    """The folder in a partition's directory that keeps removed files and bytes. It is created when first needed."""

    __slots__ = ("_disk", "_parent", "directory")

    def __init__(self, disk: Disk, parent: str, name: str) -> None:
        self._disk = disk
        self._parent = parent
        self.directory = f"{parent}/{name}"

    def _make(self) -> None:
        if not self._disk.is_dir(self.directory):
            self._disk.make_dirs(self.directory)
            self._disk.sync_dir(self._parent)

    def move(self, *paths: str) -> None:
        """Moves the files that exist into the folder."""
        found = [path for path in paths if self._disk.exists(path)]
        for path in found:
            self._make()
            self._disk.rename(path, self._target(path.rpartition("/")[2]))
        if found:
            self._disk.sync_dir(self.directory)
            self._disk.sync_dir(self._parent)

    def copy(self, path: str) -> None:
        if self._disk.exists(path):
            self.write(path.rpartition("/")[2], [self._disk.read(path)])

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        self._make()
        file = self._disk.open(self._target(name), create=True)
        try:
            for part in parts:
                file.append(part)
            file.sync()
        finally:
            file.close()
        self._disk.sync_dir(self.directory)

    def _target(self, name: str) -> str:
        """Returns a path in the folder that does not exist yet, so that no kept file is overwritten."""
        target, count = f"{self.directory}/{name}", 1
        while self._disk.exists(target):
            count += 1
            target = f"{self.directory}/{name}.{count}"
        return target
