"""Network namespaces joined by a bridge, so that real processes can be partitioned as machines are: silently, in one
direction or both, without a signal to either end.

    with Namespaces("a", "b", "c") as network:
        subprocess.Popen([*network.inside("a"), "server", "--listen", network.address("a")])
        network.cut("a", "b")          # nothing from a reaches b; b still reaches a
        network.part(["a"], ["b", "c"])  # both ways
        network.heal()

The test itself is on the bridge too, as HOST: it reaches every namespace, and can be cut off like the others. A cut is
a wrong hardware address of the other end in the sender's neighbour table. No packet filter is needed, and established
connections are cut as well as new ones. Needs root and `ip` (iproute2); `why_not` returns what is missing.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from types import TracebackType

HOST = "host"
_PREFIX = "brn"
_NOWHERE = "02:00:00:00:00:01"
_INTERFACE = "eth0"


class Namespaces:
    def __init__(self, *names: str) -> None:
        assert HOST not in names, f"{HOST} is the test itself"
        assert len(set(names)) == len(names) <= 200, "each name once"
        self._names = names
        pid = os.getpid()
        self._bridge = f"{_PREFIX}{pid}"
        self._net = f"10.{200 + pid // 250 % 50}.{pid % 250}"
        self._macs: dict[str, str] = {}
        self._cuts: set[tuple[str, str]] = set()

    # -- addresses and commands

    def address(self, name: str) -> str:
        """Returns the IPv4 address of a namespace, or of HOST."""
        return f"{self._net}.{254 if name == HOST else 1 + self._names.index(name)}"

    def inside(self, name: str) -> list[str]:
        """Returns the beginning of a command that runs in the namespace. The pid stays: `ip` becomes the command."""
        return ["ip", "netns", "exec", self._namespace(name)]

    # -- faults

    def cut(self, source: str, target: str) -> None:
        """Stops all traffic from `source` to `target`. The other direction stays as it is."""
        self._cuts.add((source, target))
        self._teach(source, target)

    def part(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Cuts the network in both directions between each of `one` and each of `other`."""
        for source, target in itertools.product(list(one), list(other)):
            self.cut(source, target)
            self.cut(target, source)

    def heal(self) -> None:
        """Ends all cuts."""
        cuts, self._cuts = self._cuts, set()
        for source, target in sorted(cuts):
            self._teach(source, target)

    # -- setup

    def open(self) -> Namespaces:
        _remove_left_behind()
        # A bridge without an address of its own takes the lowest of its members', and some systems change it later.
        self._macs[HOST] = "02:00:00:00:00:02"
        _ip("link", "add", self._bridge, "address", self._macs[HOST], "type", "bridge")
        _ip("address", "add", f"{self.address(HOST)}/24", "dev", self._bridge)
        for place, name in enumerate(self._names):
            namespace, outside = self._namespace(name), f"{self._bridge}-{place}"
            _ip("netns", "add", namespace)
            _ip("link", "add", outside, "type", "veth", "peer", "name", _INTERFACE, "netns", namespace)
            _ip("link", "set", outside, "master", self._bridge, "up")
            _ip("-n", namespace, "address", "add", f"{self.address(name)}/24", "dev", _INTERFACE)
            _ip("-n", namespace, "link", "set", _INTERFACE, "up")
            _ip("-n", namespace, "link", "set", "lo", "up")
            self._macs[name] = _mac(_ip("-n", namespace, "link", "show", _INTERFACE))
        _ip("link", "set", self._bridge, "up")
        # Hardware addresses are set, not requested: an ARP request would get through a cut.
        for source, target in itertools.permutations((HOST, *self._names), 2):
            self._teach(source, target)
        return self

    def close(self) -> None:
        """Removes the network. Processes that still run inside lose it."""
        _remove(self._bridge)

    def __enter__(self) -> Namespaces:
        try:
            return self.open()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _namespace(self, name: str) -> str:
        return f"{self._bridge}-{self._names.index(name)}"

    def _teach(self, source: str, target: str) -> None:
        """Sets the hardware address by which `source` finds `target`, or a wrong one for a cut."""
        mac = _NOWHERE if (source, target) in self._cuts else self._macs[target]
        where = ("-n", self._namespace(source)) if source != HOST else ()
        device = self._bridge if source == HOST else _INTERFACE
        entry = ("lladdr", mac, "dev", device, "nud", "permanent")
        _ip(*where, "neighbour", "replace", self.address(target), *entry)


@functools.cache
def why_not() -> str | None:
    """Returns why this machine permits no namespaces; None if it does."""
    if shutil.which("ip") is None:
        return "no `ip` (iproute2) on this machine"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Namespaces("probe"):
            return None
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted here: {error.stderr.strip()}"


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout


def _mac(shown: str) -> str:
    found = re.search(r"link/ether (\S+)", shown)
    assert found is not None, shown
    return found[1]


def _remove_left_behind() -> None:
    """Removes what killed tests left behind."""
    shown = subprocess.run(["ip", "-o", "link", "show"], capture_output=True, text=True, check=False).stdout
    shown += subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for bridge, pid in sorted(set(re.findall(rf"\b({_PREFIX}(\d+))\b", shown))):
        if not os.path.exists(f"/proc/{pid}"):
            _remove(bridge)


def _remove(bridge: str) -> None:
    shown = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    commands: list[Sequence[str]] = [
        ["netns", "delete", name] for name in re.findall(rf"^({bridge}-\d+)\b", shown, re.MULTILINE)
    ]
    links = subprocess.run(["ip", "-o", "link", "show"], capture_output=True, text=True, check=False).stdout
    # A namespace ends with its last process, and its end of a pair with it; the host's end is removed now.
    commands += [["link", "delete", name] for name in re.findall(rf": ({bridge}-\d+)@", links)]
    if re.search(rf": {bridge}:", links):
        commands.append(["link", "delete", bridge])
    for command in commands:
        subprocess.run(["ip", *command], capture_output=True, check=False)
