"""The disk port behaves the same on the operating system's files and in memory: one suite, run on both."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.common.host import Disk, File
from barnabas.server.disk import OsDisk
from barnabas.simulation.disk import MemoryDisk


@pytest.fixture(params=["os", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    """A disk and a directory on it that is empty."""
    if request.param == "os":
        yield OsDisk(), str(tmp_path)
    else:
        disk = MemoryDisk()
        disk.make_dirs("/logs")
        yield disk, "/logs"


@pytest.fixture
def disk(place: tuple[Disk, str]) -> Disk:
    return place[0]


@pytest.fixture
def root(place: tuple[Disk, str]) -> str:
    return place[1]


def _new(disk: Disk, path: str, content: bytes = b"") -> File:
    file = disk.open(path, create=True)
    if content:
        file.append(content)
    return file


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
def test_append_goes_to_the_end_and_reads_back(disk: Disk, root: str, kind: Callable[[bytes], bytes]) -> None:
    file = _new(disk, f"{root}/a")
    file.append(kind(b"abc"))
    file.append(kind(b"defg"))
    assert file.size() == 7
    assert file.read_at(0, 7) == b"abcdefg"
    assert file.read_at(2, 3) == b"cde"
    assert isinstance(file.read_at(0, 1), bytes)
    assert disk.read(f"{root}/a") == b"abcdefg"
    assert disk.size(f"{root}/a") == 7


def test_a_read_at_the_end_is_short(disk: Disk, root: str) -> None:
    file = _new(disk, f"{root}/a", b"abc")
    assert file.read_at(2, 10) == b"c"
    assert file.read_at(3, 10) == b""
    assert file.read_at(100, 10) == b""
    assert file.read_at(0, 0) == b""


def test_a_read_without_waiting_says_the_same_or_none(disk: Disk, root: str) -> None:
    file = _new(disk, f"{root}/a", bytes(range(256)) * 64)
    assert file.read_at_nowait(100, 5000) in (None, file.read_at(100, 5000))
    assert file.read_at_nowait(16_000, 5000) in (None, file.read_at(16_000, 5000))


def test_what_was_just_written_is_read_without_waiting(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = _new(disk, f"{root}/a", b"x" * 9000)
    answers = [file.read_at_nowait(10, 8000) for _ in range(3)]
    if None in answers:
        pytest.skip("this file system has no reads without waiting")
    assert answers == [b"x" * 8000] * 3


def test_write_at_replaces_and_fills_gaps_with_zeros(disk: Disk, root: str) -> None:
    file = _new(disk, f"{root}/a", b"abcdef")
    file.write_at(2, b"XY")
    assert file.read_at(0, 9) == b"abXYef"
    file.write_at(8, b"end")
    assert file.size() == 11
    assert file.read_at(0, 20) == b"abXYef\0\0end"
    file.append(b"!")
    assert file.read_at(8, 20) == b"end!"


def test_truncate_cuts_and_grows(disk: Disk, root: str) -> None:
    file = _new(disk, f"{root}/a", b"abcdef")
    file.truncate(2)
    assert (file.size(), disk.read(f"{root}/a")) == (2, b"ab")
    file.append(b"z")
    assert file.read_at(0, 9) == b"abz"
    file.truncate(5)
    assert disk.read(f"{root}/a") == b"abz\0\0"
    file.sync()


def test_two_descriptors_of_one_file(disk: Disk, root: str) -> None:
    writer = _new(disk, f"{root}/a", b"abc")
    reader = disk.open(f"{root}/a", read_only=True)
    writer.append(b"def")
    assert reader.read_at(0, 9) == b"abcdef"
    with pytest.raises(OSError):
        reader.append(b"x")
    assert disk.read(f"{root}/a") == b"abcdef"
    reader.close()
    writer.close()
    writer.close()


def test_a_closed_file_is_of_no_use(disk: Disk, root: str) -> None:
    file = _new(disk, f"{root}/a", b"abc")
    file.close()
    for use in (lambda: file.read_at(0, 1), lambda: file.append(b"x"), lambda: file.truncate(0), file.sync):
        with pytest.raises(OSError) as failed:
            use()
        assert failed.value.errno == errno.EBADF
    assert disk.read(f"{root}/a") == b"abc"


def test_missing_paths(disk: Disk, root: str) -> None:
    gone = f"{root}/none"
    uses: list[Callable[[], object]] = [
        lambda: disk.open(gone),
        lambda: disk.read(gone),
        lambda: disk.size(gone),
        lambda: disk.modified_ms(gone),
        lambda: disk.remove(gone),
        lambda: disk.remove_tree(gone),
        lambda: disk.list_dir(gone),
        lambda: disk.rename(gone, f"{root}/b"),
        lambda: disk.sync_dir(gone),
        lambda: disk.usage(gone),
        lambda: disk.open(f"{gone}/a", create=True),
        lambda: disk.write(f"{gone}/a", b"x"),
        lambda: disk.lock(f"{gone}/.lock"),
    ]
    for use in uses:
        with pytest.raises(FileNotFoundError):
            use()
    assert not disk.exists(gone)
    assert not disk.is_dir(gone)
    disk.write(f"{root}/b", b"")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/b", f"{gone}/b")


def test_directories(disk: Disk, root: str) -> None:
    disk.make_dirs(f"{root}/x/y")
    disk.make_dirs(f"{root}/x/y")
    disk.write(f"{root}/x/b", b"1")
    disk.write(f"{root}/x/a", b"22")
    assert list(disk.list_dir(f"{root}/x")) == ["a", "b", "y"]
    assert list(disk.list_dir(f"{root}/x/y")) == []
    assert list(disk.list_dir(root)) == ["x"]
    assert disk.is_dir(f"{root}/x")
    assert disk.exists(f"{root}/x")
    assert not disk.is_dir(f"{root}/x/a")
    disk.sync_dir(f"{root}/x")
    with pytest.raises(FileExistsError):
        disk.make_dirs(f"{root}/x/a")
    with pytest.raises(NotADirectoryError):
        disk.list_dir(f"{root}/x/a")
    with pytest.raises(IsADirectoryError):
        disk.open(f"{root}/x", create=True)
    with pytest.raises(IsADirectoryError):
        disk.remove(f"{root}/x/y")
    disk.remove(f"{root}/x/a")
    assert list(disk.list_dir(f"{root}/x")) == ["b", "y"]
    disk.remove_tree(f"{root}/x")
    assert list(disk.list_dir(root)) == []
    assert not disk.exists(f"{root}/x/b")


def test_rename_replaces_a_file(disk: Disk, root: str) -> None:
    disk.write(f"{root}/a", b"new")
    disk.write(f"{root}/b", b"old")
    disk.rename(f"{root}/a", f"{root}/b")
    assert disk.read(f"{root}/b") == b"new"
    assert list(disk.list_dir(root)) == ["b"]


def test_rename_of_a_directory_takes_all_of_it(disk: Disk, root: str) -> None:
    disk.make_dirs(f"{root}/t-0/deep")
    disk.write(f"{root}/t-0/a", b"1")
    disk.write(f"{root}/t-0/deep/b", b"2")
    disk.make_dirs(f"{root}/t-01")
    disk.write(f"{root}/t-01/c", b"3")
    disk.rename(f"{root}/t-0", f"{root}/gone")
    assert list(disk.list_dir(root)) == ["gone", "t-01"]
    assert disk.read(f"{root}/gone/deep/b") == b"2"
    assert disk.read(f"{root}/t-01/c") == b"3"
    assert not disk.exists(f"{root}/t-0/a")
    with pytest.raises(OSError) as failed:
        disk.rename(f"{root}/t-01", f"{root}/gone")
    assert failed.value.errno == errno.ENOTEMPTY


def test_an_open_file_survives_rename_and_removal(disk: Disk, root: str) -> None:
    file = _new(disk, f"{root}/a", b"abc")
    disk.rename(f"{root}/a", f"{root}/b")
    file.append(b"d")
    assert disk.read(f"{root}/b") == b"abcd"
    disk.remove(f"{root}/b")
    assert file.read_at(0, 9) == b"abcd"
    other = _new(disk, f"{root}/b", b"other")
    assert file.read_at(0, 9) == b"abcd"
    assert other.read_at(0, 9) == b"other"


def test_write_replaces_all_of_a_file(disk: Disk, root: str) -> None:
    disk.write(f"{root}/a", b"something long")
    disk.write(f"{root}/a", memoryview(b"short"), sync=True)
    assert disk.read(f"{root}/a") == b"short"
    with pytest.raises(IsADirectoryError):
        disk.write(root, b"x")


def test_a_lock_has_one_owner(disk: Disk, root: str) -> None:
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    assert disk.exists(f"{root}/.lock")
    lock.release()
    lock.release()
    again = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    again.release()


def test_space_and_times(disk: Disk, root: str) -> None:
    total, usable = disk.usage(root)
    assert 0 < usable <= total
    disk.write(f"{root}/a", b"x")
    assert disk.modified_ms(f"{root}/a") >= 0


def test_a_full_disk_keeps_nothing_of_an_append() -> None:
    disk = MemoryDisk(free_bytes=10)
    disk.make_dirs("/logs")
    file = _new(disk, "/logs/a", b"12345678")
    with pytest.raises(OSError) as failed:
        file.append(b"abc")
    assert failed.value.errno == errno.ENOSPC
    assert disk.read("/logs/a") == b"12345678"
    file.append(b"9a")
    assert disk.usage("/logs").usable_bytes == 0
    disk.remove("/logs/a")
    assert disk.usage("/logs").usable_bytes == 10


def test_a_full_real_disk_keeps_nothing_of_an_append() -> None:
    """`/dev/full` refuses every write; the size stays, and the error is the disk's."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    file = OsDisk().open("/dev/full")
    with pytest.raises(OSError) as failed:
        file.append(b"abc")
    assert failed.value.errno == errno.ENOSPC
    assert file.size() == 0
    file.close()


def test_an_append_that_is_taken_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    file.append(b"start ")
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    file.append(b"in many parts")
    assert (tmp_path / "a").read_bytes() == b"start in many parts"
    calls = iter([5])

    def fails_later(fd: int, data: bytes, at: int) -> int:
        for size in calls:
            return int(real(fd, bytes(data)[:size], at))
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", fails_later)
    with pytest.raises(OSError):
        file.append(b"lost again")
    assert (tmp_path / "a").read_bytes() == b"start in many parts"
    assert file.size() == 19
    file.close()
