"""An MIT Kerberos server in a directory, with keytabs for its principals."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

REALM: Final = "TEST.BARNABAS"
_PATH: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class Kdc:
    """The server and its realm. `environment` is that of a process which belongs to the realm."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.krb5_conf = folder / "krb5.conf"
        self.krb5_conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n }}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_ports = {self._port}\n kdc_tcp_ports = {self._port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            "  max_life = 10h 0m 0s\n  supported_enctypes = aes256-cts-hmac-sha1-96:normal\n }\n"
            f"[logging]\n kdc = FILE:{folder}/kdc.log\n"
        )
        self.environment = {
            **os.environ,
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5RCACHEDIR": str(folder),
        }
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "database-secret")
        self._server = subprocess.Popen(
            ["krb5kdc", "-n", "-r", REALM, "-P", str(self._folder / "kdc.pid")],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self._folder / "kdc.log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait(20)

    def keytab(self, *principals: str) -> Path:
        """Makes principals with random keys. Returns a keytab with them."""
        path = self._folder / (principals[0].replace("/", "-") + ".keytab")
        for principal in principals:
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
