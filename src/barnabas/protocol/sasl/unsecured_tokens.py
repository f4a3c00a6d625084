"""Unsecured tokens (`alg` none), for tests: each client can claim to be any user. Kafka's rules, by the options of the
JAAS entry: `unsecuredValidator...` of a broker, `unsecuredLogin...` of a node that logs in to others.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from barnabas.common.oauth_settings import UnsecuredLogin, UnsecuredRules
from barnabas.protocol.sasl.tokens import Claims, TokenRefused, ValidToken, json_object, name_of, parse, time_claim


def validate_unsecured(token: str, rules: UnsecuredRules, now_ms: int) -> ValidToken:
    """Validates a token. Raises TokenRefused."""
    parts = parse(token)
    if parts.header.get("alg") != "none":
        raise TokenRefused("its algorithm (alg) is not none, the only one of unsecured tokens")
    if parts.has_signature:
        raise TokenRefused("it has a signature, which an unsecured token must not have")
    claims = json_object(parts.claims, "payload")
    name = name_of(claims, rules.principal_claim)
    issued_s, expires_s = time_claim(claims, "iat"), time_claim(claims, "exp")
    if expires_s is None:
        raise TokenRefused("it has no expiration time (exp)")
    if issued_s is not None and issued_s * 1_000 > now_ms + rules.skew_ms:
        raise TokenRefused("its time of issue (iat) is in the future")
    if now_ms - rules.skew_ms >= expires_s * 1_000:
        raise TokenRefused("it has expired (exp)")
    if issued_s is not None and expires_s <= issued_s:
        raise TokenRefused("it expired before it was issued (exp, iat)")
    _check_scope(claims, rules)
    return ValidToken(name, int(expires_s * 1_000))


def _check_scope(claims: Claims, rules: UnsecuredRules) -> None:
    scope = claims.get(rules.scope_claim)
    # Kafka takes a text as one scope, whatever blanks it has.
    named = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
    given = {each.strip() for each in named if isinstance(each, str)}
    if not given.issuperset(rules.required_scope):
        wanted = f"[{', '.join(rules.required_scope)}]"
        response = json.dumps({"status": "insufficient_scope", "scope": wanted}, separators=(", ", ":"))
        raise TokenRefused("a required scope is missing", response)


def make_unsecured(settings: UnsecuredLogin, now_ms: int) -> str:
    """Returns a new token for a node that logs in."""
    now_s = now_ms / 1_000
    claims = {"exp": now_s + settings.lifetime_s, "iat": now_s, **settings.claims}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(value: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")
