"""Garbage collection of a serving process: no collection visits many objects, however many there are, until their
number has doubled.
"""

from __future__ import annotations

import subprocess
import sys

#: Visiting this many takes about 10 ms.
VISITED_MAX = 30_000

PROGRAM = """
import gc
from barnabas.server import memory

memory.prepare()
before = [[] for _ in range(200_000)]
memory.settle()
visited = [0, 0, 0]

def on_collection(phase, details):
    if phase == "start":
        generations = range(details["generation"] + 1)
        count = sum(len(gc.get_objects(generation)) for generation in generations)
        visited[details["generation"]] = max(visited[details["generation"]], count)

gc.callbacks.append(on_collection)
# A request of 100,000 rows: all of them live until it is answered.
requests = [[(str(row), [row]) for row in range(100_000)] for _ in range(3)]
gc.callbacks.clear()
print(*visited)
"""


def test_rows_of_a_large_request_are_collected_a_few_at_a_time() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    youngest, middle, whole = map(int, answer.stdout.split())
    assert 0 < youngest <= VISITED_MAX
    assert 0 < middle <= VISITED_MAX
    assert whole == 0, "a full collection visits all objects since the start"


DOUBLING = """
import gc
from barnabas.server import memory

memory.prepare()
memory.settle()
full = []
gc.callbacks.append(lambda phase, details: details["generation"] == 2 and full.append(phase))
collections = memory.FullCollections(grown_blocks_min=200_000)

class Pair:
    pass

def cycles(count):
    for _ in range(count):
        one, other = Pair(), Pair()
        one.other, other.other = other, one

# Cycles that survive the young collections: only a full one finds them.
held = []
for _ in range(20_000):
    pair = Pair()
    pair.itself = pair
    held.append(pair)
assert not collections.check(), "few objects are there"
for _ in range(200_000):
    pair = Pair()
    pair.itself = pair
    held.append(pair)
cycles(100_000)
assert not full, "no full collection comes by itself"
held.clear()
assert collections.check(), "their number has doubled"
assert len([found for found in gc.get_objects() if isinstance(found, Pair)]) <= 1
assert not collections.check()
"""


def test_a_full_collection_comes_when_the_number_of_objects_has_doubled() -> None:
    subprocess.run([sys.executable, "-c", DOUBLING], check=True, timeout=60)


def test_the_end_of_the_startup_visits_no_objects() -> None:
    """A collection would hold up the first clients for as long as it visits everything that the start has made."""
    program = (
        "import gc\n"
        "from barnabas.server.memory import prepare, settle\n"
        "prepare()\n"
        "found = []\n"
        "gc.callbacks.append(lambda phase, info: found.append(info))\n"
        "settle()\n"
        "print(len(found), gc.isenabled(), gc.get_freeze_count() > 1000)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.split() == ["0", "True", "True"]
