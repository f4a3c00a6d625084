"""The configuration of a server by the keys of Apache's `zoo.cfg`.

    heeded       has a row in `_HEEDED`
    irrelevant   only for an ensemble, or for how Apache's server works inside: read, and without effect
    refused      TLS, SASL, ensembles, compressed snapshots: the server does not start, and says why
    unknown      a warning names the key, as does one that Apache knows and this server does not serve

Apache's server also takes most of these keys as system properties with the prefix `zookeeper.`; that prefix is accepted
here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from barnabas.common.errors import ConfigError
from barnabas.common.properties import parse_properties
from barnabas.zookeeper.files.file_names import VERSION_FOLDER
from barnabas.zookeeper.files.file_store import FileSettings
from barnabas.zookeeper.files.purge import RETAINED_MIN
from barnabas.zookeeper.server.server_settings import ServerSettings

PREFIX: Final = "zookeeper."
_INT_MAX: Final = (1 << 31) - 1
_KB: Final = 1024


@dataclass(frozen=True, slots=True)
class ZooConfig:
    """The configuration of a server. `host` is the address to listen on, "" for all."""

    host: str
    port: int
    #: `dataDir` and `dataLogDir`, without `version-2`.
    data_dir: str
    log_dir: str
    server: ServerSettings
    files: FileSettings
    #: `snapshot.trust.empty`
    trust_empty: bool
    #: The warnings: a line for each key whose lack of effect could surprise an operator.
    warnings: tuple[str, ...]

    def with_folders(self, data_dir: str, log_dir: str) -> ZooConfig:
        """Returns a copy of the configuration with other folders."""
        server = replace(
            self.server,
            client_port=self.port,
            data_dir=f"{data_dir}/{VERSION_FOLDER}",
            data_log_dir=f"{log_dir}/{VERSION_FOLDER}",
        )
        return replace(self, data_dir=data_dir, log_dir=log_dir, server=server)


def _int(least: int, most: int = _INT_MAX) -> Callable[[str, str], int]:
    def parse(key: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ConfigError(f"{key} is {text!r}; expected a number from {least} to {most}") from None
        if not least <= value <= most:
            raise ConfigError(f"{key} is {text}; expected {least} to {most}")
        return value

    return parse


def _bool(key: str, text: str) -> bool:
    value = {"true": True, "false": False}.get(text.lower())
    if value is None:
        raise ConfigError(f"{key} is {text!r}; expected true or false")
    return value


def _yes_unless_no(key: str, text: str) -> bool:
    return text.lower() not in ("no", "false")


def _is_yes(key: str, text: str) -> bool:
    return text.lower() in ("yes", "true")


def _text(key: str, text: str) -> str:
    return text


def _words(key: str, text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split(",") if word.strip())


#: The names of Java's algorithms, and those of hashlib.
_ALGORITHMS: Final = {
    "MD5": "md5",
    "SHA1": "sha1",
    "SHA-1": "sha1",
    "SHA-224": "sha224",
    "SHA-256": "sha256",
    "SHA-384": "sha384",
    "SHA-512": "sha512",
    "SHA3-224": "sha3_224",
    "SHA3-256": "sha3_256",
    "SHA3-384": "sha3_384",
    "SHA3-512": "sha3_512",
}


def _algorithm(key: str, text: str) -> str:
    name = _ALGORITHMS.get(text.upper())
    if name is None:
        raise ConfigError(f"{key} is {text!r}; expected one of {', '.join(_ALGORITHMS)}")
    return name


class _Key(NamedTuple):
    """A key of the file: the settings that it belongs to ("server", "files", "config"), its field there, and the parser
    of its text.
    """

    part: str
    field: str
    parse: Callable[[str, str], Any]
    #: The number by which values of the key are multiplied for the field.
    factor: int = 1


_HEEDED: Final[dict[str, _Key]] = {
    "dataDir": _Key("config", "data_dir", _text),
    "dataLogDir": _Key("config", "log_dir", _text),
    "clientPort": _Key("config", "port", _int(0, 65535)),
    "clientPortAddress": _Key("config", "host", _text),
    "clientPortListenBacklog": _Key("server", "listen_backlog", _int(-1)),
    "tickTime": _Key("server", "tick_ms", _int(1)),
    "maxClientCnxns": _Key("server", "client_connections_max", _int(0)),
    "maxCnxns": _Key("server", "connections_max", _int(0)),
    "minSessionTimeout": _Key("server", "session_timeout_min_ms", _int(-1)),
    "maxSessionTimeout": _Key("server", "session_timeout_max_ms", _int(-1)),
    "jute.maxbuffer": _Key("server", "frame_bytes_max", _int(1)),
    "globalOutstandingLimit": _Key("server", "outstanding_max", _int(1)),
    "4lw.commands.whitelist": _Key("server", "four_letter_words", _words),
    "skipACL": _Key("server", "skip_acl", _is_yes),
    "enforceQuota": _Key("server", "enforce_quota", _bool),
    "extendedTypesEnabled": _Key("server", "extended_types", _bool),
    "reconfigEnabled": _Key("server", "reconfig_enabled", _bool),
    "DigestAuthenticationProvider.superDigest": _Key("server", "super_digest", _text),
    "DigestAuthenticationProvider.enabled": _Key("server", "digest_scheme", _bool),
    "DigestAuthenticationProvider.digestAlg": _Key("server", "digest_algorithm", _algorithm),
    "digest.enabled": _Key("server", "digests", _bool),
    "znode.container.checkIntervalMs": _Key("server", "container_check_ms", _int(1)),
    "znode.container.maxPerMinute": _Key("server", "container_deletions_per_minute", _int(1)),
    "znode.container.maxNeverUsedIntervalMs": _Key("server", "container_never_used_ms", _int(0)),
    "nio.sessionlessCnxnTimeout": _Key("server", "sessionless_timeout_ms", _int(1)),
    "preAllocSize": _Key("files", "preallocated_bytes", _int(0), _KB),
    "snapCount": _Key("files", "snapshot_after_txns", _int(2)),
    "snapSizeLimitInKb": _Key("files", "snapshot_after_bytes", _int(-1), _KB),
    "forceSync": _Key("files", "force_sync", _yes_unless_no),
    "autopurge.snapRetainCount": _Key("files", "snapshots_retained", _int(0)),
    "autopurge.purgeInterval": _Key("files", "purge_interval_hours", _int(0)),
    "snapshot.trust.empty": _Key("config", "trust_empty", _bool),
}

#: Keys of ensembles, and of internals of Apache's server: common in files, and harmless.
_IRRELEVANT: Final = frozenset(
    {
        "initLimit",
        "syncLimit",
        "connectToLearnerMasterLimit",
        "electionAlg",
        "peerType",
        "syncEnabled",
        "standaloneEnabled",
        "quorumListenOnAllIPs",
        "localSessionsEnabled",
        "localSessionsUpgradingEnabled",
        "leaderServes",
        "observerMasterPort",
        "commitLogCount",
        "fsync.warningthresholdms",
        "maxResponseCacheSize",
        "maxGetChildrenResponseCacheSize",
        "tcpKeepAlive",
        "flushDelay",
        "maxWriteQueuePollTime",
        "maxBatchSize",
        "closeSessionTxn.enabled",
        "datadir.autocreate",
        "db.autocreate",
        "serverCnxnFactory",
        "watchManagerName",
        "admin.enableServer",
        "admin.serverPort",
        "admin.serverAddress",
        "admin.commandURL",
        "admin.idleTimeout",
        "audit.enable",
        "sslQuorum",
        "quorum.auth.enableSasl",
    }
)
_IRRELEVANT_PREFIXES: Final = (
    "jvm.pause.",
    "nio.",
    "netty.",
    "metricsProvider.",
    "multiAddress.",
    "quorum.",
    "ssl.quorum.",
    "jute.maxbuffer.",
    "commitProcessor.",
    "learner.",
    "leader.",
    "weight.",
    "group.",
)
#: The keys with which the server refuses to start, because it cannot do what they require, with the reasons.
_REFUSED: Final[dict[str, str]] = {
    "secureClientPort": "this server has no TLS",
    "secureClientPortAddress": "this server has no TLS",
    "dynamicConfigFile": "this server is standalone and joins no ensemble",
    "sessionRequireClientSASLAuth": "this server has no SASL",
    "snapshot.compression.method": "snapshots are written uncompressed",
}
_REFUSED_PREFIXES: Final = {
    "ssl.": "this server has no TLS",
    "authProvider.": "only world, auth, digest and ip are available",
}
_OFF: Final = frozenset({"", "false", "no"})


def load_zoo_cfg(text: str, overrides: Mapping[str, str], data_dir: str = "") -> ZooConfig:
    """Reads the configuration from the text of a file, "" for none, and from overrides. `data_dir` is used if neither
    names one. Raises ConfigError.
    """
    properties = {key.strip(): value.strip() for key, value in {**parse_properties(text), **overrides}.items()}
    properties = {key.removeprefix(PREFIX): value for key, value in properties.items()}
    parts: dict[str, dict[str, Any]] = {"server": {}, "files": {}, "config": {}}
    warnings: list[str] = []
    for key, value in properties.items():
        row = _HEEDED.get(key)
        if row is None:
            _check_unheeded(key, value, warnings)
            continue
        parsed = row.parse(key, value)
        parts[row.part][row.field] = parsed * row.factor if row.factor != 1 else parsed
    _refuse_ensemble(properties)
    config = {"host": "", "port": 2181, "data_dir": data_dir, "log_dir": "", "trust_empty": False, **parts["config"]}
    if not config["data_dir"]:
        raise ConfigError("dataDir is not set: it names the folder for snapshots and the log")
    config["log_dir"] = config["log_dir"] or config["data_dir"]
    files = FileSettings(**parts["files"])
    if files.snapshots_retained < RETAINED_MIN:
        warnings.append(
            f"autopurge.snapRetainCount is {files.snapshots_retained}; {RETAINED_MIN} snapshots are retained"
        )
        files = files._replace(snapshots_retained=RETAINED_MIN)
    server = ServerSettings(**parts["server"])
    if server.timeout_min_ms > server.timeout_max_ms:
        raise ConfigError(
            f"minSessionTimeout ({server.timeout_min_ms}) is larger than maxSessionTimeout ({server.timeout_max_ms})"
        )
    made = ZooConfig(**config, server=server, files=files, warnings=tuple(warnings))
    return made.with_folders(made.data_dir, made.log_dir)


def _check_unheeded(key: str, value: str, warnings: list[str]) -> None:
    """Refuses a key that the server cannot obey, and warns of one that has no effect. Raises ConfigError."""
    if key in _IRRELEVANT or key.startswith((*_IRRELEVANT_PREFIXES, "server.")):
        return
    reason = _REFUSED.get(key)
    if reason is None:
        reason = next((why for prefix, why in _REFUSED_PREFIXES.items() if key.startswith(prefix)), None)
    if reason is None:
        warnings.append(f"{key} is not known to this server and has no effect")
    elif value.lower() not in _OFF:
        raise ConfigError(f"{key}={value} is not supported: {reason}")


def _refuse_ensemble(properties: Mapping[str, str]) -> None:
    servers = sorted(key for key in properties if key.startswith("server."))
    if len(servers) > 1:
        raise ConfigError(f"{', '.join(servers)}: this server is standalone; use Apache ZooKeeper for an ensemble")
