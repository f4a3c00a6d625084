"""The checks of whether a node can continue from its state on disk, and the class that saves its promises."""

from __future__ import annotations

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import FatalFault, StorageExhausted, is_exhausted
from barnabas.metadata.registrations import Endpoint, endpoints_of
from barnabas.raft.log_checkpoint import LogCheckpointWriter
from barnabas.raft.log_loading import Loaded
from barnabas.raft.quorum_state import FILE_NAME, ElectionState, QuorumStateFile
from barnabas.raft.voter_history import VoterHistory
from barnabas.raft.voters import VoterEndpoint, VoterKey


def controller_endpoints(config: BrokerConfig) -> tuple[VoterEndpoint, ...]:
    """Returns the endpoints where the other voters reach this node; none if it is not a controller."""
    if not config.is_controller:
        return ()
    shown: tuple[Endpoint, ...] = endpoints_of(config.controller_listeners, config.advertised_listeners)
    return tuple(VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in shown)


def state_at_least(stored: ElectionState | None, epoch: int) -> ElectionState:
    """Returns the stored state, or a state in `epoch` if the log contains that later epoch."""
    return ElectionState(epoch) if stored is None or stored.epoch < epoch else stored


def check_stored(config: BrokerConfig, own: VoterKey, stored: ElectionState | None, loaded: Loaded) -> None:
    """Raises FatalFault if this directory belongs to another quorum or another voter."""
    voters = loaded.history.voters
    directory = config.metadata_log_dir
    if stored is not None and stored.voter_ids and config.voters and loaded.history.kraft_version == 0:
        configured = tuple(sorted(voter.node_id for voter in config.voters))
        if tuple(sorted(stored.voter_ids)) != configured:
            raise FatalFault(
                f"{directory}/__cluster_metadata-0/{FILE_NAME} belongs to a quorum with the voters "
                f"{_show(stored.voter_ids)}, but controller.quorum.voters names {_show(configured)}: "
                "set it to the voters of this directory, or "
                "use the directory of this quorum"
            )
    if not config.is_controller and voters.by_id(own.node_id) is not None:
        raise FatalFault(
            f"node {own.node_id} votes in the metadata quorum by the log in {directory}, but process.roles does not "
            "name the controller: give it that role, or remove the voter first"
        )


class PromiseWriter:
    """Writes promises to disk: `quorum-state`, then the checkpoint, which records the epoch in which this node took
    part. The event's messages are sent afterwards (`execution.py`).
    """

    def __init__(
        self, file: QuorumStateFile, checkpoint: LogCheckpointWriter, history: VoterHistory, directory: str
    ) -> None:
        self._file = file
        self._checkpoint = checkpoint
        self._history = history
        self._directory = directory

    def save(self, state: ElectionState) -> None:
        """Saves a promise, synced when this returns.

        Raises StorageExhausted if there is no space for it: then nothing was promised.
        """
        history = self._history
        try:
            self._file.write(state, kraft_version=min(history.kraft_version, 1), voter_ids=list(history.voters.ids))
            self._checkpoint.note_epoch(state.epoch)
        except OSError as error:
            if is_exhausted(error):
                raise StorageExhausted(self._directory, f"{FILE_NAME} cannot be written: {error}") from error
            raise


def _show(ids: tuple[int, ...]) -> str:
    return ", ".join(str(node_id) for node_id in ids)
