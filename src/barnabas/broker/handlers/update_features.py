"""UpdateFeatures (57), versions 0-2: changes feature levels of the cluster, all or none (KIP-584, KIP-1022)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest


def handle(context: RequestContext, request: UpdateFeaturesRequest, services: Services) -> None:
    services.quorum.controller.update_features(request, context.api_version, context.reply, actor=context.principal)
