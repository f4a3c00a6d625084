"""The final report of the demo: the proof, the fault and its cost, the latency of a record, the places of the files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.cli import output
from barnabas.cli.demo_course import BrokerKill
from barnabas.cli.orders import show_proof

if TYPE_CHECKING:
    from barnabas.orders.proof import Proof
    from barnabas.pipelines.latency import Latencies


def show(proof: Proof, fault: BrokerKill | None, latencies: Latencies, files: Sequence[Path]) -> None:
    show_proof(proof, as_json=False)
    if fault is not None:
        output.say(_fault(fault))
    p50, p99 = latencies.percentile_ms(50), latencies.percentile_ms(99)
    if p50 is not None and p99 is not None:
        output.say(f"from the log to the tables: p50 {p50 / 1000:.2f} s, p99 {p99 / 1000:.2f} s")
    for file in files:
        output.say(f"  {file}")


def document(
    proof: Proof, fault: BrokerKill | None, latencies: Latencies, files: Sequence[Path], elapsed_s: float
) -> dict[str, Any]:
    """Returns the report as a JSON document."""
    p50, p99 = latencies.percentile_ms(50), latencies.percentile_ms(99)
    return {
        **proof.plain(),
        "fault": None if fault is None else asdict(fault),
        "latency_ms": {"p50": p50, "p99": p99},
        "files": [str(file) for file in files],
        "elapsed_s": round(elapsed_s, 1),
    }


def write(path: Path, shown: dict[str, Any]) -> None:
    path.write_text(json.dumps(shown, indent=2) + "\n")


def _fault(fault: BrokerKill) -> str:
    roles = "the active controller and " if fault.was_controller else ""
    led = output.counted(len(fault.led), "partition")
    return (
        f"kill -9 took {roles}the leader of {led}: every partition had a new leader "
        f"{fault.leaders_after_s:.2f} s later, and every ISR was complete again after {fault.isr_full_after_s:.1f} s"
    )
