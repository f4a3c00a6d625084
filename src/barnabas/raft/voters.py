"""The voters of the metadata quorum (KIP-595 static, KIP-853 dynamic).

A voter is a node id *and* a directory id: a node that lost its disk is another voter. In a static quorum
(`controller.quorum.voters`) directory ids are unknown, and zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.common.types import ZERO_UUID
from barnabas.protocol.messages.records_raft import LeaderChangeMessage, VotersRecord


class VoterKey(NamedTuple):
    node_id: int
    directory_id: bytes = ZERO_UUID


class VoterEndpoint(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    key: VoterKey
    endpoints: tuple[VoterEndpoint, ...]
    min_kraft_version: int = 0
    max_kraft_version: int = 1


def address_on(endpoints: Sequence[VoterEndpoint], listener: str) -> tuple[str, int] | None:
    """Returns (host, port) of the endpoint with this name, or of the first one if there is none."""
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint.host, endpoint.port
    return (endpoints[0].host, endpoints[0].port) if endpoints else None


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, ascending by node id."""

    voters: tuple[Voter, ...] = ()

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def find(self, key: VoterKey) -> Voter | None:
        """Returns the voter with this key; a voter without a known directory matches any directory of its node."""
        return next((voter for voter in self.voters if self.is_same(voter.key, key)), None)

    @staticmethod
    def is_same(voter: VoterKey, key: VoterKey) -> bool:
        return voter.node_id == key.node_id and voter.directory_id in (ZERO_UUID, key.directory_id)

    def by_id(self, node_id: int) -> Voter | None:
        """Returns the voter with this node id, which is unique."""
        return next((voter for voter in self.voters if voter.key.node_id == node_id), None)

    def address_of(self, node_id: int, listener: str) -> tuple[str, int] | None:
        """Returns (host, port) of a voter on the listener of this name, or on its first one."""
        voter = self.by_id(node_id)
        return None if voter is None else address_on(voter.endpoints, listener)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.key.node_id for voter in self.voters)

    def with_voter(self, voter: Voter) -> VoterSet:
        """Returns the set with this voter, which replaces one with the same node id."""
        others = [other for other in self.voters if other.key.node_id != voter.key.node_id]
        return VoterSet(tuple(sorted([*others, voter])))

    def without(self, key: VoterKey) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))

    def is_only(self, key: VoterKey) -> bool:
        return len(self.voters) == 1 and self.find(key) is not None

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                VotersRecord.Voter(
                    voter_id=voter.key.node_id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        VotersRecord.Endpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                        for endpoint in voter.endpoints
                    ],
                    kraft_version_feature=VotersRecord.KRaftVersionFeature(
                        min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                    ),
                )
                for voter in self.voters
            ],
        )

    def leader_change(self, leader_id: int, granting: tuple[VoterKey, ...]) -> LeaderChangeMessage:
        return LeaderChangeMessage(
            version=0,
            leader_id=leader_id,
            voters=[LeaderChangeMessage.Voter(voter_id=voter.key.node_id) for voter in self.voters],
            granting_voters=[LeaderChangeMessage.Voter(voter_id=key.node_id) for key in granting],
        )


def voters_from_record(record: VotersRecord) -> VoterSet:
    return VoterSet(
        tuple(
            sorted(
                Voter(
                    VoterKey(voter.voter_id, voter.voter_directory_id),
                    tuple(VoterEndpoint(e.name, e.host, e.port) for e in voter.endpoints),
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                )
                for voter in record.voters
            )
        )
    )
