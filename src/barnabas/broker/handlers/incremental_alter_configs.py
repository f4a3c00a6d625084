"""IncrementalAlterConfigs (44), versions 0-1: sets, deletes, appends to and subtracts from single keys (KIP-339).

This broker validates the resources one by one and sends the valid ones to the controller together.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.configs import config_changes
from barnabas.broker.configs.config_changes import ConfigChange, ResourceChanges
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.controller.requests.configs import CHANGES_MAX
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ERROR_ROWS: Final = (ErrorRows("responses", "resources"),)
PIECES: Final = Pieces(30, "resources", "responses", key="resource_name")


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest, services: Services) -> None:
    # A request is read up to one change above the limit, which is enough to refuse it.
    resources = [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            [
                ConfigChange(entry.name, entry.config_operation, entry.value)
                for entry in resource.configs[: CHANGES_MAX + 1]
            ],
        )
        for resource in request.resources
    ]

    config_changes.alter(context, services, request, resources, IncrementalAlterConfigsResponse)
