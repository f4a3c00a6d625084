"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates (KIP-664).

KIP-994 (filter by duration, 1+), KIP-1152 (filter by an RE2 pattern that matches the whole id, 2). Unknown states in
the filter are returned in the response, and match nothing.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.patterns import PatternError, matcher
from barnabas.coordinators.transactions.coordinator import Filters
from barnabas.coordinators.transactions.state import TxnState
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

_SHOWN = {state.shown: state for state in TxnState}


def handle(context: RequestContext, request: ListTransactionsRequest, services: Services) -> ListTransactionsResponse:
    response = ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _SHOWN]
    )
    try:
        filters = Filters(
            states=frozenset(_SHOWN[name] for name in request.state_filters if name in _SHOWN),
            producer_ids=frozenset(request.producer_id_filters),
            open_for_ms=request.duration_filter,
            matches=matcher(request.transactional_id_pattern) if request.transactional_id_pattern else None,
        )
        if request.state_filters and not filters.states:
            return response
        found = services.transactions.list(filters)
    except PatternError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    except RequestFailed as failure:
        return ListTransactionsResponse(error_code=failure.code)
    response.transaction_states = [
        ListTransactionsResponse.TransactionState(
            transactional_id=one.transactional_id,
            producer_id=one.image.producer_id,
            transaction_state=one.image.state.shown,
        )
        for one in found
    ]
    return response
