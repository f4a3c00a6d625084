"""Documentation of the keys of OAUTHBEARER, all of which have an effect."""

from __future__ import annotations

from typing import Final

HEEDED: Final[dict[str, str]] = {
    "sasl.oauthbearer.assertion.algorithm": "The algorithm with which this node signs its assertions: RS256 or ES256.",
    "sasl.oauthbearer.assertion.claim.aud": "The claim aud of an assertion that this node signs.",
    "sasl.oauthbearer.assertion.claim.exp.seconds": "How long an assertion is valid after its creation, in seconds.",
    "sasl.oauthbearer.assertion.claim.iss": "The claim iss of an assertion that this node signs.",
    "sasl.oauthbearer.assertion.claim.jti.include": "Whether an assertion that this node signs has a claim jti, a new "
    "random id.",
    "sasl.oauthbearer.assertion.claim.nbf.seconds": "How long an assertion is valid before its creation, in seconds.",
    "sasl.oauthbearer.assertion.claim.sub": "The claim sub of an assertion that this node signs.",
    "sasl.oauthbearer.assertion.file": "The file with the assertion by which this node requests its token, with "
    "JwtBearerJwtRetriever. It is read again for each request, and must be in barnabas.sasl.oauthbearer.allowed.files.",
    "sasl.oauthbearer.assertion.private.key.file": "The file with the private key (PKCS #8, PEM) with which this node "
    "signs its assertions, if there is no sasl.oauthbearer.assertion.file. It is read again for each request, and must "
    "be in barnabas.sasl.oauthbearer.allowed.files.",
    "sasl.oauthbearer.assertion.private.key.passphrase": "The passphrase of the private key, if it is encrypted.",
    "sasl.oauthbearer.assertion.template.file": "A JSON file with the members header and payload: further fields and "
    "claims of the assertions that this node signs. It must be in barnabas.sasl.oauthbearer.allowed.files.",
    "sasl.oauthbearer.client.credentials.client.id": "The client id with which this node requests its token from "
    "the token endpoint. If not set, clientId of the JAAS entry is used.",
    "sasl.oauthbearer.client.credentials.client.secret": "The client secret with which this node requests its token "
    "from the token endpoint. If not set, clientSecret of the JAAS entry is used.",
    "sasl.oauthbearer.clock.skew.seconds": "How far the clocks of the issuer of a token and of this node can differ, "
    "in seconds.",
    "sasl.oauthbearer.expected.audience": "The allowed audiences (claim aud), separated by commas: a token must "
    "name one of them. If not set, a token must not name any.",
    "sasl.oauthbearer.expected.issuer": "The issuer (claim iss) that a token must name. If not set, any issuer is "
    "accepted.",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "How often the node fetches the key set "
    "(sasl.oauthbearer.jwks.endpoint.url), in milliseconds.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "The longest time that the node waits between two "
    "requests for the key set after failures, in milliseconds.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "How long the node waits after the first failed request for "
    "the key set, in milliseconds; each further failure doubles the time.",
    "sasl.oauthbearer.jwks.endpoint.url": "The URL (http, https or file) of the key set (JWKS) with which tokens of "
    "OAUTHBEARER are validated. It must be in barnabas.sasl.oauthbearer.allowed.urls.",
    "sasl.oauthbearer.jwt.retriever.class": "The class that gets the tokens of this node. Of Kafka's four retrievers, "
    "JwtBearerJwtRetriever requests tokens by assertions; with the others, the token endpoint's URL decides between a "
    "request by client credentials and a file.",
    "sasl.oauthbearer.jwt.validator.class": "The class that validates tokens. DefaultJwtValidator and "
    "BrokerJwtValidator can be named; both mean that the broker validates them.",
    "sasl.oauthbearer.scope": "The scope that this node requests from the token endpoint. If not set, scope of the "
    "JAAS entry is used.",
    "sasl.oauthbearer.scope.claim.name": "The claim that contains the scope of a token.",
    "sasl.oauthbearer.sub.claim.name": "The claim that contains the name of the user.",
    "sasl.oauthbearer.token.endpoint.url": "Where this node gets the tokens with which it logs in to other nodes: "
    "the http or https URL of a token endpoint, or the file URL of a token. It must be in "
    "barnabas.sasl.oauthbearer.allowed.urls.",
}
