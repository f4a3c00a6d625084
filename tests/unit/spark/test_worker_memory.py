"""Objects that a worker has loaded when it reads are exempt from garbage collection; other processes are not
changed.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_SHOW = """
import gc, json, sys
from pyspark import TaskContext
from barnabas.spark.worker_memory import freeze_loaded_objects
if sys.argv[1] == "task":
    TaskContext._getOrCreate()
counts = []
for _ in range(2):
    freeze_loaded_objects()
    kept = [[] for _ in range(1000)]
    counts.append(gc.get_freeze_count())
print(json.dumps(counts))
"""


@pytest.mark.parametrize("where", ["task", "driver"])
def test_frozen_once_and_only_in_tasks(where: str) -> None:
    done = subprocess.run([sys.executable, "-c", _SHOW, where], capture_output=True, check=True)
    first, second = json.loads(done.stdout)
    if where == "driver":
        assert first == second == 0
    else:
        assert first > 5_000
        # Newer objects are still collected: only deleted objects leave the frozen ones.
        assert second <= first
