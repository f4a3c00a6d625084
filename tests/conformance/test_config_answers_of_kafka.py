"""The recorded answers to configuration requests are those of a live Apache Kafka 4.1.0."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RECORDER = Path(__file__).parents[2] / "tools" / "record_config_answers.py"


@pytest.mark.full
def test_a_live_kafka_answers_what_is_recorded() -> None:
    done = subprocess.run([sys.executable, str(RECORDER), "--check"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
