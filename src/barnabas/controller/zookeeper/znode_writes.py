"""The changes of znodes that a controller makes, as parts of multis that can be compared with what is found later."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.zookeeper.client.store import ZnodeContent
from barnabas.zookeeper.wire.codes import ANY_VERSION, CreateFlags, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import CheckVersionRequest, CreateRequest, DeleteRequest, SetDataRequest


class ZnodeWrite(NamedTuple):
    """A change of one znode. `version` is the data version that it must have, or `ANY_VERSION`."""

    op: OpCode
    path: str
    data: bytes | None = None
    version: int = ANY_VERSION
    #: Whether a creation makes an ephemeral znode, which ends with the session.
    is_ephemeral: bool = False
    #: Whether the content is meant for the znode that exists as well as for a new one.
    is_put: bool = False

    @property
    def size_bytes(self) -> int:
        """The approximate size of this write in a request."""
        return len(self.path) + len(self.data or b"") + _OVERHEAD_BYTES

    def part(self) -> Part:
        if self.op is OpCode.CREATE:
            flags = CreateFlags.EPHEMERAL if self.is_ephemeral else CreateFlags.PERSISTENT
            return Part(self.op, CreateRequest(self.path, self.data, None, flags))
        if self.op is OpCode.SET_DATA:
            return Part(self.op, SetDataRequest(self.path, self.data, self.version))
        assert self.op is OpCode.DELETE, self.op
        return Part(self.op, DeleteRequest(self.path, self.version))

    def is_done(self, found: ZnodeContent | None) -> bool:
        """Returns whether the znode has the content of this write, whichever client wrote it."""
        if self.op is OpCode.DELETE:
            return found is None
        if found is None or (found.data or b"") != (self.data or b""):
            return False
        return self.op is OpCode.CREATE or self.version == ANY_VERSION or found.version == self.version + 1

    def fitting(self, found: ZnodeContent | None) -> ZnodeWrite:
        """Returns the operation that this write needs for the znode that was found: a `put` creates it or sets its
        content.
        """
        if not self.is_put:
            return self
        return self._replace(op=OpCode.CREATE if found is None else OpCode.SET_DATA)


#: The header of a part, the lengths of its fields, the version or the flags, and the ACL.
_OVERHEAD_BYTES: Final = 64


def create(path: str, data: bytes | None = None) -> ZnodeWrite:
    return ZnodeWrite(OpCode.CREATE, path, data)


def set_data(path: str, data: bytes, version: int = ANY_VERSION) -> ZnodeWrite:
    return ZnodeWrite(OpCode.SET_DATA, path, data, version)


def put(path: str, data: bytes) -> ZnodeWrite:
    """Creates a znode, or sets its content if it exists, which is known only when the creation was refused."""
    return ZnodeWrite(OpCode.CREATE, path, data, is_put=True)


def delete(path: str) -> ZnodeWrite:
    return ZnodeWrite(OpCode.DELETE, path)


def check(path: str, version: int) -> Part:
    return Part(OpCode.CHECK, CheckVersionRequest(path, version))
