"""Error codes as they are sent on the wire."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ErrorCode


@pytest.mark.parametrize("code", [-32_768, -2, 134, 255, 32_767])
def test_a_code_that_nobody_knows_is_an_error(code: int) -> None:
    """Newer peers have more of them."""
    assert ErrorCode(code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not ErrorCode(code).retriable
