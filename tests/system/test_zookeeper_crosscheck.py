"""Our ZooKeeper server and Apache's give equal answers, Stats, errors and events to the same random operations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.support.zookeeper_crosscheck import Side, SocketClient, first_difference
from tests.support.zookeeper_world import World

from zookeeper_jars import ApacheZooKeeper

pytestmark = pytest.mark.full

#: The digest of "super:admin".
SUPER_DIGEST: Final = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="
STEPS: Final = 1500


@pytest.mark.parametrize("seed", [1, 48, 58, 78])
def test_both_servers_answer_alike(seed: int, tmp_path: Path) -> None:
    properties = {
        "extendedTypesEnabled": "true",
        "tickTime": "1000",
        "DigestAuthenticationProvider.superDigest": SUPER_DIGEST,
        "forceSync": "no",
        "maxClientCnxns": "0",
    }
    world = World(extended_types=True, super_digest=SUPER_DIGEST, client_connections_max=0)
    with ApacheZooKeeper(tmp_path, properties=properties) as apache:
        ours = Side(world.client, lambda client: client.core.closed())
        theirs = Side(lambda: SocketClient(apache.port), SocketClient.drop)
        difference = first_difference(seed, STEPS, (ours, theirs))
    assert difference is None, difference
