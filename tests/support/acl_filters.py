"""The filter of DescribeAcls and DeleteAcls that matches every rule."""

from __future__ import annotations

from typing import Any, Final

#: 1 means any value, of a type, a pattern, an operation or a permission.
EVERY_RULE: Final[dict[str, Any]] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
