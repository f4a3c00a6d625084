"""The settings of a server, by the names of `zoo.cfg`, with the defaults of ZooKeeper 3.8.4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The answer of `srvr` and `stat`, and the first row of `envi`; clients take the version from its beginning.
VERSION: Final = "3.8.4-barnabas, built on 2024-02-12 22:16 UTC"

_TIMEOUT_TICKS_MIN: Final = 2
_TIMEOUT_TICKS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server. Times are in milliseconds, sizes in bytes; -1 means the value that follows from the
    other settings.
    """

    client_port: int = 2181
    #: `dataDir` and `dataLogDir`, absolute, as `conf` shows them (with `version-2`).
    data_dir: str = ""
    data_log_dir: str = ""
    #: `tickTime`: sessions expire in steps of it.
    tick_ms: int = 3000
    #: `minSessionTimeout`, `maxSessionTimeout`: 2 and 20 ticks unless they are set.
    session_timeout_min_ms: int = -1
    session_timeout_max_ms: int = -1
    #: `maxClientCnxns`: the connections from one address; 0 means no limit.
    client_connections_max: int = 60
    #: `maxCnxns`: all connections; 0 means no limit.
    connections_max: int = 0
    #: `clientPortListenBacklog`
    listen_backlog: int = -1
    #: `jute.maxbuffer`: a longer frame ends its connection.
    frame_bytes_max: int = 0xFFFFF
    #: `zookeeper.globalOutstandingLimit`: with more requests in progress, connections that have some are not read.
    outstanding_max: int = 1000
    #: `4lw.commands.whitelist`; "*" is all of them. `srvr` is always served.
    four_letter_words: frozenset[str] = frozenset({"srvr"})
    #: `skipACL`
    skip_acl: bool = False
    #: `enforceQuota`: hard limits are enforced.
    enforce_quota: bool = False
    #: `extendedTypesEnabled`: without it, creating a TTL node is UNIMPLEMENTED.
    extended_types: bool = False
    #: `reconfigEnabled`: reconfig is refused either way, with RECONFIGDISABLED or UNIMPLEMENTED.
    reconfig_enabled: bool = False
    #: `DigestAuthenticationProvider.superDigest`, like "super:base64".
    super_digest: str = ""
    #: `DigestAuthenticationProvider.enabled`: clients can authenticate with a password.
    digest_scheme: bool = True
    #: `DigestAuthenticationProvider.digestAlg`, by its name in hashlib.
    digest_algorithm: str = "sha1"
    #: `zookeeper.digest.enabled`: each transaction has the digest of the tree after it.
    digests: bool = True
    #: `znode.container.checkIntervalMs`, `.maxPerMinute`, `.maxNeverUsedIntervalMs` (0 means never).
    container_check_ms: int = 60_000
    container_deletions_per_minute: int = 10_000
    container_never_used_ms: int = 0
    #: `zookeeper.nio.sessionlessCnxnTimeout`
    sessionless_timeout_ms: int = 10_000
    version: str = VERSION

    @property
    def timeout_min_ms(self) -> int:
        return self.tick_ms * _TIMEOUT_TICKS_MIN if self.session_timeout_min_ms == -1 else self.session_timeout_min_ms

    @property
    def timeout_max_ms(self) -> int:
        return self.tick_ms * _TIMEOUT_TICKS_MAX if self.session_timeout_max_ms == -1 else self.session_timeout_max_ms

    def clamp(self, timeout_ms: int) -> int:
        """Returns the session timeout that the server grants for the requested one."""
        return min(max(timeout_ms, self.timeout_min_ms), self.timeout_max_ms)
