"""Second decisions of a quorum's node about what its peers send: foreign, incomplete and late messages, records of a
newer release, votes, what a node reports about its peers, and what it has committed and published.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from types import SimpleNamespace
from typing import Any, Final

from barnabas.common.errors import ErrorCode, FatalFault
from barnabas.common.types import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, uuid_to_text
from barnabas.metadata.features import SUPPORTED_FEATURES
from barnabas.metadata.frame import encode_record
from barnabas.metadata.image import METADATA_VERSION
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.protocol.messages.vote import VoteResponse
from barnabas.raft.log_checkpoint import CheckpointIdentity, LogCheckpoint, LogCheckpointFile
from barnabas.raft.quorum import Prospective
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision

_NEWEST: Final = max(each.max_version for each in SUPPORTED_FEATURES if each.name == METADATA_VERSION)


class _Anything:
    """Equals everything: a part of a decision that is not judged."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


_ANYTHING: Final = _Anything()


# -- messages about the metadata log alone


def _own_partition(message: Any) -> Any:
    """Returns the partition of a message that is about the metadata log alone."""
    topics = message.responses if hasattr(message, "responses") else message.topics
    rows = [(topic, row) for topic in topics for row in topic.partitions]
    if len(topics) != 1 or len(rows) != 1:
        return None
    ((topic, row),) = rows
    names = [getattr(topic, slot) for slot in ("topic_name", "topic", "name") if hasattr(topic, slot)]
    numbers = [getattr(row, slot) for slot in ("partition_index", "partition", "index") if hasattr(row, slot)]
    is_own = names[:1] == [METADATA_TOPIC] or getattr(topic, "topic_id", None) == METADATA_TOPIC_ID
    return row if is_own and numbers[0] == 0 else None


def _near_messages(message: Any) -> Iterator[Arguments]:
    """Yields the message with no, other or several topics and partitions."""
    slot = "responses" if hasattr(message, "responses") else "topics"
    topics = getattr(message, slot)
    if not topics or not topics[0].partitions:
        return
    topic, row = topics[0], topics[0].partitions[0]
    number = next(name for name in ("partition_index", "partition", "index") if hasattr(row, name))
    named = [name for name in ("topic_name", "topic", "name") if hasattr(topic, name)]

    def changed(found: list[Any]) -> Arguments:
        other = copy(message)
        setattr(other, slot, found)
        return (other,)

    def topic_of(rows: list[Any], **fields: Any) -> Any:
        other = copy(topic)
        other.partitions = rows
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    for count in (0, 2):
        yield changed([topic] * count)
        yield changed([topic_of([row] * count)])
    yield changed([topic, topic_of([])])
    for index in (-1, 0, 1):
        other = copy(row)
        setattr(other, number, index)
        yield changed([topic_of([other])])
    for name in named[:1]:
        for text in ("", METADATA_TOPIC[:-1], METADATA_TOPIC, METADATA_TOPIC + "x", "zz"):
            yield changed([topic_of([row], **{name: text})])
    if hasattr(topic, "topic_id"):
        for topic_id in (ZERO_UUID, METADATA_TOPIC_ID, bytes(15) + b"\x02", b"\xff" * 16):
            yield changed([topic_of([row], topic_id=topic_id)])


# -- records


class _Values(list[Any]):
    """The values of a batch that a probe has made, with what comes of them."""

    outcome: Any = None


def _read(base_offset: int, values: Any) -> object:
    if not isinstance(values, _Values):
        return UNJUDGED
    if values.outcome is FatalFault:
        raise FatalFault("a newer metadata.version")
    return values.outcome


def _names(records: Any, *_: Any) -> object:
    return [getattr(record, "name", None) for record in records]


def _near_records(base_offset: int, values: Any) -> Iterator[Arguments]:
    """Yields batches with a metadata.version of this release, or a newer one, and records that nobody knows."""
    unknown = bytes([1, 0xFF, 0x7F, 0])
    for level in (_NEWEST - 1, _NEWEST, _NEWEST + 1, _NEWEST + 9):
        for name in (METADATA_VERSION, "another"):
            for place in range(3):
                for more in ([], [unknown]):
                    names = ["first", "second"]
                    names.insert(place, name)
                    made = _Values()
                    for each in names:
                        record = FeatureLevelRecord(name=each, feature_level=level if each == name else 1)
                        made.append(encode_record(record, 0))
                    made += more
                    if name == METADATA_VERSION and level > _NEWEST:
                        made.outcome = FatalFault
                    elif more:
                        made.outcome = "failed", "DecodeError"
                    else:
                        made.outcome = names
                    yield base_offset, made


# -- the identity of a directory


def _belongs(host: Any, config: Any, path: str, meta: Any) -> object:
    known: Any = getattr(host, "known", UNJUDGED)
    if known is UNJUDGED or known is None:
        return known
    directory, cluster = (None if each in ("-", uuid_to_text(ZERO_UUID)) else each for each in known)
    found = uuid_to_text(meta.directory_id or ZERO_UUID), meta.cluster_id or ""
    is_other = (directory not in (None, found[0])) or (cluster not in (None, found[1]))
    return ("failed", "ConfigError") if is_other else None


def _near_identities(host: Any, config: Any, path: str, meta: Any) -> Iterator[Arguments]:
    own = meta.directory_id or ZERO_UUID
    for directory_id in (own, ZERO_UUID, b"\x07" * 16):
        for cluster_id in (meta.cluster_id or "", "another", "with a space"):
            disk = MemoryDisk()
            disk.make_dirs(config.metadata_log_dir)
            identity = CheckpointIdentity.of(config.node_id, cluster_id, directory_id)
            LogCheckpointFile(disk, config.metadata_log_dir).create(identity, LogCheckpoint())
            known = identity.directory_id, identity.cluster_id
            yield SimpleNamespace(disk=disk, known=known), config, path, meta
    yield SimpleNamespace(disk=MemoryDisk(), known=None), config, path, meta


# -- reports about peers


class _Reports:
    """The reports of a probe, instead of those of the host."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.faults = self
        self.refused: list[tuple[Any, int]] = []
        self.expected: list[str] = []

    def report(self, text: str, error: BaseException | None = None) -> None:
        self.said.append("report")

    def fatal(self, text: str, error: BaseException | None = None) -> None:
        self.said.append("fatal")


def _reported(core: Any, node: Any, response: Any) -> object:
    """Returns what the reports are after a refusal: one for each peer and error."""
    if not isinstance(core.host, _Reports):
        return UNJUDGED
    key = node, response.error_code
    if key not in core.host.refused:
        core.host.refused.append(key)
        is_foreign = response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        core.host.expected.append("fatal" if is_foreign and not core.has_joined else "report")
    return list(core.host.expected)


def _said(_: Any, core: Any, *more: Any) -> object:
    return list(core.host.said) if isinstance(core.host, _Reports) else None


def _near_refusals(core: Any, node: Any, response: Any) -> Iterator[Arguments]:
    for has_joined in (False, True):
        other = copy(core)
        other.host, other.has_joined, other._refusals = _Reports(), has_joined, set()
        codes = ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for peer in (1, 2, ("host", 9), ("host", 10), 1, ("other", 9), 2):
            for code in codes:
                yield other, peer, SimpleNamespace(error_code=int(code))


# -- votes


def _counted_vote(elections: Any, role: Any, voter: Any, response: Any) -> object:
    """Returns whether a voter has granted and has rejected its vote after its answer, and whether it counts as gone."""
    core, node_id = elections._core, voter.key.node_id
    quorum = core.quorum
    granted, rejected = node_id in role.votes.granted, node_id in role.votes.rejected
    is_asked = quorum.role is role and not core.is_stopped
    is_counting = is_asked and not elections._is_backing_off
    if response is None:
        address = core.address_of(node_id)
        is_refused = is_counting and address is not None and core.is_refused(address)
        gone = {*elections._gone, *([node_id] if is_refused else [])}
        return granted, rejected, _gone_after(quorum, role, gone, node_id, is_asked=is_asked)
    answer = None
    if isinstance(response, VoteResponse) and not response.error_code:
        answer = _own_partition(response)
    if answer is None or core.is_stopped:
        return granted, rejected, _gone_after(quorum, role, elections._gone, node_id, is_asked=is_asked)
    if answer.leader_id >= 0:
        return UNJUDGED  # The node possibly follows this leader from now on.
    is_right = answer.leader_epoch == quorum.epoch and not answer.error_code
    if is_counting and is_right and not granted and not rejected:
        granted, rejected = answer.vote_granted, not answer.vote_granted
    return granted, rejected, _ANYTHING


def _gone_after(quorum: Any, role: Any, gone: Any, node_id: int, *, is_asked: bool) -> object:
    """Returns whether a voter counts as gone, unless that ends the election, or another one has begun."""
    ids = set(quorum.voters.ids)
    refusing = ids & role.votes.rejected
    left = ids - refusing - (set(gone) - role.votes.granted)
    is_lost = bool(refusing) and len(left) * 2 <= len(ids)
    if not is_asked or (is_lost and isinstance(role, Prospective)):
        return _ANYTHING
    return node_id in gone


def _vote_state(_: Any, elections: Any, role: Any, voter: Any, response: Any) -> object:
    node_id, votes = voter.key.node_id, role.votes
    return node_id in votes.granted, node_id in votes.rejected, node_id in elections._gone


# -- commits and images


def _after_answer(following: Any) -> object:
    """Returns what is known to be committed after an answer, and whether the voter still has to catch up."""
    core = following._core
    log, told, before = core.log, following._leader_high_watermark, core.delivery.high_watermark
    has_caught_up = told >= 0 and log.flushed_offset >= told
    known = before if told < 0 or told < before else max(before, min(told, log.end_offset))
    return known, core.is_restricted and not has_caught_up


def _committed_state(_: Any, following: Any) -> object:
    core = following._core
    return core.delivery.high_watermark, core.is_restricted


def _published(publisher: Any) -> object:
    return True, 0, True, publisher._loader.in_transaction


def _published_state(_: Any, publisher: Any) -> object:
    """Returns whether changes are published one by one from now on, how many wait, and whether the image is the
    newest."""
    store, loader = publisher._store, publisher._loader
    return publisher._caught_up, len(publisher._changes), store.image is loader.image, store.in_transaction


PEER_DECISIONS: Final = (
    SecondDecision("raft.messages:only_partition", _own_partition, _near_messages, judged_every=50),
    SecondDecision("raft.metadata_batches:_decoded", _read, _near_records, _names, judged_every=50),
    SecondDecision("raft.formatting:_check_identity", _belongs, _near_identities),
    SecondDecision("raft.core:Core.report_refusal", _reported, _near_refusals, _said),
    SecondDecision("raft.elections:Elections._on_vote", _counted_vote, shown=_vote_state),
    SecondDecision("raft.following:Following._commit", _after_answer, shown=_committed_state),
    SecondDecision("raft.publisher:MetadataPublisher.on_caught_up", _published, shown=_published_state),
)
