"""The parts of certificates that the node uses: the subject, the alternative names, and the time of validity."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from barnabas.tls.der import IDENTIFIER, OCTETS, SEQUENCE, Element, dotted, only
from barnabas.tls.distinguished_names import java_name

_SUBJECT_ALT_NAME: Final = "2.5.29.17"
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_UTC_TIME: Final = 0x17
_DNS_NAME, _IP_ADDRESS = 2, 7
#: The kinds of alternative names that are text: an e-mail address, a host, a URI.
_TEXT_NAMES: Final = frozenset({1, _DNS_NAME, 6})


class Certificate(NamedTuple):
    #: The subject's encoded name, and its text as Java writes it.
    subject_der: bytes
    subject: str
    #: The alternative names, each as (kind, text).
    alternative_names: frozenset[tuple[int, str]]
    not_before: datetime
    not_after: datetime


def parse_certificate(der: bytes) -> Certificate:
    """Returns the parts of an encoded certificate. Raises ValueError if it is malformed."""
    try:
        fields = only(der).parts[0].parts
        if fields[0].tag == _VERSION:
            fields.pop(0)
        validity, subject = fields[3], fields[4]
        begin, end = map(_time, validity.parts[:2])
        extensions = next((each for each in fields[6:] if each.tag == _EXTENSIONS), None)
        names = frozenset() if extensions is None else _alternative_names(extensions)
        return Certificate(subject.whole, java_name(subject.whole), names, begin, end)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("not a certificate") from error


def subject_of(der: bytes) -> str:
    """Returns the name of a certificate's subject as Java writes it. Raises ValueError if it is malformed."""
    return parse_certificate(der).subject


def _time(element: Element) -> datetime:
    text = element.content.decode("ascii")
    form = "%y%m%d%H%M%SZ" if element.tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text, form).replace(tzinfo=UTC)


def _alternative_names(extensions: Element) -> frozenset[tuple[int, str]]:
    for extension in only(extensions.content).parts:
        parts = extension.parts
        if parts[0].tag == IDENTIFIER and dotted(parts[0].content) == _SUBJECT_ALT_NAME and parts[-1].tag == OCTETS:
            names = only(parts[-1].content)
            if names.tag == SEQUENCE:
                return frozenset(map(_general_name, names.parts))
    return frozenset()


def _general_name(element: Element) -> tuple[int, str]:
    kind = element.tag & 0x1F
    if kind in _TEXT_NAMES:
        return kind, element.content.decode("ascii", "replace")
    if kind == _IP_ADDRESS and len(element.content) == 4:
        return kind, ".".join(map(str, element.content))
    if kind == _IP_ADDRESS and len(element.content) == 16:
        content = element.content
        return kind, ":".join(f"{int.from_bytes(content[at : at + 2], 'big'):x}" for at in range(0, 16, 2))
    return kind, element.content.hex()
