"""Names of certificates as Java writes them (`X500Principal.getName()`, RFC 2253), because ACLs contain these texts.

    C=DE, O="Acme, Inc.", CN=app   ->   CN=app,O=Acme\\, Inc.,C=DE

Attributes that RFC 2253 does not name have their number and the value in hexadecimal: `1.2.840.113549.1.9.1=#1605...`.
"""

from __future__ import annotations

from typing import Final

from barnabas.tls.der import Element, dotted, only

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
#: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads the bytes of all as UTF-8.
_TEXT_TAGS: Final = frozenset({12, 19, 20, 22, 27, 30})
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def java_name(name: bytes, separator: str = ",") -> str:
    """Returns the text of an encoded name (a `Name` of X.509). Raises ValueError if it is malformed."""
    texts = ["+".join(map(_attribute, each.parts)) for each in only(name).parts]
    return separator.join(reversed(texts))


def _attribute(pair: Element) -> str:
    kind, value = pair.parts[:2]
    number = dotted(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    shown = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    inner = shown.strip(" \r")
    if not inner:
        return "".join(f"\\{each}" for each in shown)
    begin = shown.index(inner)
    lead, trail = shown[:begin], shown[begin + len(inner) :]
    return "".join(f"\\{each}" for each in lead) + inner + "".join(f"\\{each}" for each in trail)
