"""The name and version of a client library in ApiVersions requests (KIP-511)."""

from __future__ import annotations

import re
from typing import Final

from barnabas.protocol.messages.api_versions import ApiVersionsRequest

_FORM: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
#: The first version with the name of the software.
_NAMED_SINCE: Final = 3


def is_well_formed(request: ApiVersionsRequest, version: int) -> bool:
    """Returns whether the names in the request have the form that Kafka requires."""
    if version < _NAMED_SINCE:
        return True
    return bool(_FORM.fullmatch(request.client_software_name) and _FORM.fullmatch(request.client_software_version))
