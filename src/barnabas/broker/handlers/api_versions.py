"""ApiVersions (18), versions 0-4: the APIs of this listener, and the cluster's features (KIP-511, KIP-584).

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the supported range, so that the client can
retry. Versions below 4 cannot represent features whose lowest level is 0: these are left out.

Every new connection sends this request, so an encoded response is kept for each listener and version until the features
change.
"""

from __future__ import annotations

from barnabas.broker.requests.cluster_side import FeatureView
from barnabas.broker.requests.context import EncodedVersions, Services
from barnabas.broker.requests.in_flight import Chunks, InFlight, finish_response, start_response
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer
from barnabas.protocol import codec
from barnabas.protocol.api import API_VERSIONS
from barnabas.protocol.client_software import is_well_formed
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_FEATURES_FROM_ZERO = 4


def handle_raw(request: InFlight, frame: memoryview, position: int, services: Services) -> Chunks | None:
    offers = request.connection.offers
    own = offers[API_VERSIONS]
    if not own.version_min <= request.api_version <= own.version_max:
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=API_VERSIONS, min_version=own.version_min, max_version=own.version_max
                )
            ],
        )
        return _encode(request, response, 0)
    message, _ = codec.decode(ApiVersionsRequest, request.api_version, frame, position)
    if not is_well_formed(message, request.api_version):
        return _encode(request, ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), request.api_version)
    if request.api_version >= 3:
        request.connection.client_software = (message.client_software_name, message.client_software_version)
    features = services.side.features()
    if request.throttle is not None:
        return _encode(request, _answer(request, features), request.api_version)
    key = (request.connection.listener, request.api_version)
    kept = services.encoded_versions.get(key)
    if kept is None or kept.offers is not offers or kept.features != features:
        body = bytes(codec.encode(_answer(request, features), request.api_version))
        kept = services.encoded_versions[key] = EncodedVersions(offers, features, body)
    return _framed(request, kept.body)


def _answer(request: InFlight, features: FeatureView) -> ApiVersionsResponse:
    from_zero = request.api_version >= _FEATURES_FROM_ZERO
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=offer.shown_min, max_version=offer.version_max)
            for key, offer in sorted(request.connection.offers.items())
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(
                name=feature.name, min_version=feature.min_version, max_version=feature.max_version
            )
            for feature in features.supported
            if from_zero or feature.min_version > 0
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(features.finalized.items())
            if level > 0
        ],
    )


def _encode(request: InFlight, response: ApiVersionsResponse, version: int) -> Chunks:
    response = response if request.throttle is None else request.throttle.with_throttle_time(response, version)
    return _framed(request, codec.encode(response, version))


def _framed(request: InFlight, body: Buffer) -> Chunks:
    """Returns the response with its header, always in version 0, so that any client can read it (KIP-511)."""
    head = start_response(request.correlation_id, 0)
    head += body
    finish_response(head)
    return [head]
