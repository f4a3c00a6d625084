"""BrokerRegistration (62), versions 0-4: registers a broker process with the cluster (KIP-631).

A registration is refused while the previous process of that broker may still run; that process is then probed. After a
power failure nobody has closed its connection, and only the probe or the end of its session shows that it is gone.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


def handle(context: RequestContext, request: BrokerRegistrationRequest, services: Services) -> None:
    def reply(response: BrokerRegistrationResponse) -> None:
        if response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            services.quorum.liveness.on_refused(request.broker_id)
        context.reply(response)

    services.quorum.controller.register_broker(request, reply)
