"""The znodes that exist once in a cluster: the block of producer ids, and the features."""

from __future__ import annotations

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.controller.requests import producer_ids
from barnabas.controller.requests.producer_ids import ProducerIdBlock
from barnabas.controller.requests.result import Result
from barnabas.controller.requests.view import ControllerView
from barnabas.controller.zookeeper.core import Core
from barnabas.controller.zookeeper.fenced_writer import Unit
from barnabas.controller.zookeeper.znode_writes import create, set_data
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import Features, decode_features, decode_producer_id_block, encode_features
from barnabas.znodes.entity_records import producer_ids_record
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ReadReply

#: The content of `/feature` that Kafka 3.9 writes: version 2, enabled, and no feature is finalized.
_NO_FEATURES = Features(2, True, {})


class SingleZnodes:
    """Reads and writes these znodes for the active controller, in one controller epoch. The block of producer ids is
    read at the activation; after that only this controller writes it: each write depends on its version, and after a
    conflict it is read again.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def start(self) -> None:
        self.read_again(paths.PRODUCER_ID_BLOCK)
        self._core.reader.read(paths.FEATURE, self._on_features)

    def read_again(self, path: str) -> None:
        if path == paths.PRODUCER_ID_BLOCK:
            self._core.reader.read(path, self._on_producer_ids)
        elif path == paths.FEATURE:
            self._core.reader.read(path, self._on_features)

    def _on_producer_ids(self, reply: ReadReply) -> None:
        path = paths.PRODUCER_ID_BLOCK
        if reply.znode is None:
            return
        try:
            block = decode_producer_id_block(path, reply.znode.data)
        except ZnodeError as error:
            self._core.problems.add(error)
            return
        self._core.problems.mended(path)
        self._core.records.found_version(path, reply.znode.version)
        if block is not None:
            self._core.records.take([producer_ids_record(block)])

    def allocate(self, view: ControllerView, broker_id: int, broker_epoch: int) -> Result[ProducerIdBlock]:
        """Allocates a block of producer ids. Raises RequestFailed if the last block cannot be read: the next one could
        begin in it."""
        if paths.PRODUCER_ID_BLOCK not in self._core.records.versions:
            raise RequestFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{paths.PRODUCER_ID_BLOCK} cannot be read")
        return producer_ids.allocate(view, broker_id, broker_epoch)

    def _on_features(self, reply: ReadReply) -> None:
        """Enables the features: a release before 2.7 leaves them disabled, and one before 3.3 writes version 1."""
        path = paths.FEATURE
        if reply.znode is None:
            self._core.records.write([Unit(path, (create(path, encode_features(_NO_FEATURES)),))], ())
            return
        try:
            found = decode_features(path, reply.znode.data)
        except ZnodeError as error:
            self._core.problems.add(error)
            return
        self._core.problems.mended(path)
        wanted = _NO_FEATURES._replace(levels=found.levels if found.enabled else {})
        if wanted != found:
            write = set_data(path, encode_features(wanted), reply.znode.version)
            self._core.records.write([Unit(path, (write,))], ())
