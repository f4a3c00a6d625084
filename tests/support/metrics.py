"""The content of /metrics of a broker in memory."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.assembly import Broker
from barnabas.server.exporter import Exporter

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(broker: Broker) -> str:
    return "".join(Exporter(broker, lambda: [("PLAINTEXT", 1)]).text())


def parsed(text: str) -> Values:
    """Returns the values by (name, labels), as Prometheus's own client reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Metrics:
    """Metrics of a broker. `metrics("name", topic="orders")` returns a value; KeyError if there is none."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._values = parsed(text)

    @classmethod
    def of(cls, broker: Broker) -> Metrics:
        return cls(scraped(broker))

    def __call__(self, name: str, **labels: str) -> float:
        return self._values[name, tuple(sorted(labels.items()))]

    @property
    def names(self) -> set[str]:
        """Returns the names of its samples, and of families that have no samples at present."""
        declared = {line.split()[2] for line in self.text.splitlines() if line.startswith("# TYPE ")}
        return {name for name, _ in self._values} | declared
