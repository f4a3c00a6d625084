"""UpdateFeatures (57), versions 0-2: changes feature levels of the cluster, all or none (KIP-584, KIP-1022).

In ZooKeeper mode, versions 0-1, there are no features: each update in the request gets an error.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest


def handle(context: RequestContext, request: UpdateFeaturesRequest, services: Services) -> None:
    services.side.update_features(context, request)
