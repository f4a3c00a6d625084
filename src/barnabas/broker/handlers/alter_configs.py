"""AlterConfigs (33), versions 0-2: replaces all configs of a resource by those in the request; the older API."""

from __future__ import annotations

from typing import Final

from barnabas.broker.configs import config_changes
from barnabas.broker.configs.config_changes import SET, ConfigChange, ResourceChanges
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

ERROR_ROWS: Final = (ErrorRows("responses", "resources"),)
PIECES: Final = Pieces(30, "resources", "responses", key="resource_name")


def handle(context: RequestContext, request: AlterConfigsRequest, services: Services) -> None:
    resources = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(entry.name, SET, entry.value) for entry in resource.configs],
        )
        for resource in request.resources
    ]

    config_changes.alter(context, services, request, resources, AlterConfigsResponse, replace=True)
