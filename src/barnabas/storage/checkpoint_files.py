"""The offset checkpoints of a log directory: written immediately where something waits for them, else in the
background.

    immediately    what must be on disk before anything else happens: a recovery point that went back, a shutdown
    in background  a draft is filled in slices, then encoded, written and synced by the pool in a file of its own; back
                   on the loop it is renamed into place, unless it became void meanwhile; the pool syncs the name

Invariants
- A draft is void as soon as anything in it can be wrong: so what is written immediately is never replaced by older
  offsets, and there is at most one draft of each file.
- `LogDirectory.written` is the content of the file; until its name is synced, a failure can bring back the previous
  one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from barnabas.common.host import Disk, Host, Lock
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.storage.checkpoints import encode_offsets, remove_quietly, write_atomically
from barnabas.storage.recovery.inventory import Sizes

Offsets = dict[TopicPartition, int]
_DRAFT_INFIX = ".beside-"


class LogDirectory:
    """One of `log.dirs` that this process has locked."""

    __slots__ = ("clean", "drafts", "id", "inventory", "lock", "path", "unsynced_names", "written")

    def __init__(self, path: str, lock: Lock) -> None:
        self.path = path
        self.lock = lock
        #: The directory's id; zero if it was never formatted.
        self.id: bytes = ZERO_UUID
        #: Whether the last shutdown was clean.
        self.clean = False
        #: The segments of each log, as that shutdown left them; empty if unknown.
        self.inventory: dict[TopicPartition, Sizes] = {}
        #: Checkpoint name -> content of the file, so that unchanged ones are not written again.
        self.written: dict[str, Offsets] = {}
        #: Checkpoints whose name is not synced yet.
        self.unsynced_names: set[str] = set()
        self.drafts: dict[str, CheckpointDraft] = {}


class CheckpointDraft:
    """The next content of a checkpoint, while it is collected and written."""

    __slots__ = ("directory", "is_void", "name", "offsets")

    def __init__(self, directory: LogDirectory, name: str) -> None:
        self.directory = directory
        self.name = name
        self.offsets: Offsets = {}
        self.is_void = False


class CheckpointFiles:
    """Writes the checkpoints. `on_failed(path, error)` is called for a directory in which a write failed."""

    def __init__(self, host: Host, on_failed: Callable[[str, BaseException], None]) -> None:
        self._disk = host.disk
        self._blocking = host.blocking
        self._on_failed = on_failed
        # A process that has just stopped can still be writing its last draft.
        self._suffix = _DRAFT_INFIX + host.random.uuid().hex()[:8]

    # -- immediately

    def write(self, directory: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes a checkpoint if it changed. Raises OSError; if the disk is full, the old file stays, which is older
        but not wrong."""
        _void(directory, name)
        if name in directory.unsynced_names or directory.written.get(name) != offsets:
            write_atomically(self._disk, f"{directory.path}/{name}", encode_offsets(offsets))
            directory.written[name] = dict(offsets)
            directory.unsynced_names.discard(name)

    def is_at_most(self, directory: LogDirectory, name: str, topic_partition: TopicPartition, offset: int) -> bool:
        """Returns whether the checkpoint on disk is certain to have no higher offset for that partition, even after a
        failure.
        """
        draft = directory.drafts.get(name)
        return (
            name not in directory.unsynced_names
            and directory.written.get(name, {}).get(topic_partition, 0) <= offset
            and (draft is None or draft.offsets.get(topic_partition, 0) <= offset)
        )

    # -- in the background

    def draft(self, directory: LogDirectory, name: str) -> CheckpointDraft | None:
        """Returns a draft to be filled in and passed to `finish`; None while another draft is in progress."""
        if name in directory.drafts:
            return None
        made = directory.drafts[name] = CheckpointDraft(directory, name)
        return made

    def abandon(self, draft: CheckpointDraft) -> None:
        """Ends a draft that is not written."""
        _void(draft.directory, draft.name, draft)

    def finish(self, draft: CheckpointDraft, then: Callable[[], None] | None = None) -> None:
        """Writes a complete draft; the caller must not change it any more. `then` is called once it is synced, or void,
        or could not be written.
        """
        directory, name = draft.directory, draft.name
        if draft.is_void or (name not in directory.unsynced_names and directory.written.get(name) == draft.offsets):
            _void(directory, name, draft)
            _call(then)
            return
        disk, offsets, temporary = self._disk, draft.offsets, f"{directory.path}/{name}{self._suffix}"

        def written(_: object, error: BaseException | None) -> None:
            self._take_name(draft, temporary, error, then)

        self._blocking.run(lambda: _write(disk, temporary, offsets), written)

    def _take_name(
        self, draft: CheckpointDraft, temporary: str, error: BaseException | None, then: Callable[[], None] | None
    ) -> None:
        directory, name, disk = draft.directory, draft.name, self._disk
        if draft.is_void:
            self._blocking.run(lambda: remove_quietly(disk, temporary), _ignore)
            _call(then)
            return
        del directory.drafts[name]
        try:
            if error is None:
                disk.rename(temporary, f"{directory.path}/{name}")
        except OSError as unnamed:
            error = unnamed
        if error is not None:
            self._on_failed(directory.path, error)
            _call(then)
            return
        written = directory.written[name] = draft.offsets
        directory.unsynced_names.add(name)

        def synced(_: object, error: BaseException | None) -> None:
            if error is not None:
                self._on_failed(directory.path, error)
            elif directory.written.get(name) is written:
                directory.unsynced_names.discard(name)
            _call(then)

        self._blocking.run(lambda: disk.sync_dir(directory.path), synced)

    def stop(self, directories: Iterable[LogDirectory]) -> None:
        """Discards the drafts in progress, so that they are not renamed into place."""
        for directory in directories:
            for name in tuple(directory.drafts):
                _void(directory, name)


def has_entry(directory: LogDirectory, topic_partition: TopicPartition) -> bool:
    """Returns whether a checkpoint in the directory has an entry for this partition, or is about to get one."""
    return any(topic_partition in offsets for offsets in directory.written.values()) or any(
        topic_partition in draft.offsets for draft in directory.drafts.values()
    )


def remove_drafts(disk: Disk, directory: str) -> None:
    """Removes the drafts that a process left behind."""
    for name in disk.list_dir(directory):
        if _DRAFT_INFIX in name:
            remove_quietly(disk, f"{directory}/{name}")


def _void(directory: LogDirectory, name: str, draft: CheckpointDraft | None = None) -> None:
    known = directory.drafts.get(name)
    if known is not None and (draft is None or draft is known):
        known.is_void = True
        del directory.drafts[name]


def _write(disk: Disk, path: str, offsets: Offsets) -> None:
    try:
        disk.write(path, encode_offsets(offsets), sync=True)
    except OSError:
        remove_quietly(disk, path)
        raise


def _call(callback: Callable[[], None] | None) -> None:
    if callback is not None:
        callback()


def _ignore(_: object, error: BaseException | None) -> None:
    """Ignores the failed removal of a draft: the next startup removes the leftover file."""
