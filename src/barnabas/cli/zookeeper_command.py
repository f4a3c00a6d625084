"""`barnabas zookeeper`: the command line of the ZooKeeper server, parsed by hand because it must start quickly.

    zookeeper [zoo.cfg] [--port N] [--host ADDRESS] [--data-dir DIR] [--data-log-dir DIR] [--tick-time MS]
              [--set KEY=VALUE ...]

Options are keys of `zoo.cfg` under other names, and override the file.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from barnabas.common.errors import ConfigError
from barnabas.zookeeper.zoo_cfg import ZooConfig, load_zoo_cfg

USAGE: Final = (
    "usage: barnabas zookeeper [zoo.cfg] [--port N] [--host ADDRESS] [--data-dir DIR] [--data-log-dir DIR] "
    "[--tick-time MS] [--set KEY=VALUE ...]"
)
DATA_DIR: Final = "./zookeeper-data"
_OPTIONS: Final = {
    "--port": "clientPort",
    "--host": "clientPortAddress",
    "--data-dir": "dataDir",
    "--data-log-dir": "dataLogDir",
    "--tick-time": "tickTime",
}


def main(argv: Sequence[str]) -> int:
    """Runs the server until a signal stops it. Returns the exit code."""
    try:
        config = configured(argv)
    except ConfigError as error:
        sys.stderr.write(f"barnabas: {error}\n")
        return 2
    # The server's imports take most of the time of a start; a wrong command line does not wait for them.
    code: int = importlib.import_module("barnabas.server.zookeeper").run(config)
    return code


def configured(argv: Sequence[str]) -> ZooConfig:
    """Returns the configuration that the arguments name. Raises ConfigError."""
    arguments = list(argv)
    file: str | None = None
    overrides: dict[str, str] = {}
    while arguments:
        argument = arguments.pop(0)
        name, equals, value = argument.partition("=")
        if name == "--set" or name in _OPTIONS:
            if not equals:
                if not arguments:
                    raise ConfigError(f"{name} needs a value\n{USAGE}")
                value = arguments.pop(0)
            if name == "--set":
                key, equals, value = value.partition("=")
                if not equals or not key.strip():
                    raise ConfigError(f"--set takes KEY=VALUE, not {key!r}\n{USAGE}")
                overrides[key.strip()] = value.strip()
            else:
                overrides[_OPTIONS[name]] = value
        elif argument.startswith("-") or file is not None:
            raise ConfigError(f"unexpected argument {argument!r}\n{USAGE}")
        else:
            file = argument
    config = load_zoo_cfg(_text_of(file), overrides, DATA_DIR)
    return config.with_folders(os.path.abspath(config.data_dir), os.path.abspath(config.log_dir))


def _text_of(file: str | None) -> str:
    if file is None:
        return ""
    try:
        with open(file, encoding="utf-8") as stream:
            return stream.read()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {file}: the file is not UTF-8") from error
