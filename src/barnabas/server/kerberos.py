"""Kerberos by the system's libraries, libgssapi_krb5 and libkrb5, through ctypes: nothing is compiled.

The module is imported by the first listener or link with GSSAPI. The functions are those of RFC 2744 and MIT's
extension for credential stores (`gss_acquire_cred_from`).
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from typing import Any, Final

from barnabas.common.kerberos import KerberosError, KerberosUnavailable

_GSSAPI: Final = "libgssapi_krb5.so.2"
_KRB5: Final = "libkrb5.so.3"
_PACKAGE: Final = "libgssapi-krb5-2"

_COMPLETE: Final = 0
_ERRORS: Final = 0xFFFF0000
_INITIATE, _ACCEPT = 1, 2
_STATUS_CODE, _MECHANISM_CODE = 1, 2
#: Both sides prove who they are; tokens cannot be replayed; data has a proof of its origin.
_FLAGS: Final = 2 | 4 | 32


class _Buffer(Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Oid(Structure):
    _fields_ = (("length", c_uint32), ("elements", c_char_p))


class _OidSet(Structure):
    _fields_ = (("count", c_size_t), ("elements", POINTER(_Oid)))


class _Element(Structure):
    _fields_ = (("key", c_char_p), ("value", c_char_p))


class _Store(Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_Element)))


def _oid(data: bytes) -> _Oid:
    return _Oid(len(data), data)


_KERBEROS: Final = _oid(bytes.fromhex("2a864886f712010202"))
_PRINCIPAL: Final = _oid(bytes.fromhex("2a864886f71201020201"))
_SERVICE: Final = _oid(bytes.fromhex("2a864886f71201020104"))
_MECHANISMS: Final = _OidSet(1, ctypes.pointer(_KERBEROS))


class KerberosLibrary:
    """The libraries (a `common.kerberos.Kerberos`)."""

    def __init__(self) -> None:
        """Loads the libraries. Raises KerberosUnavailable."""
        try:
            self._gss, self._krb5 = ctypes.CDLL(_GSSAPI), ctypes.CDLL(_KRB5)
            self._gss.gss_acquire_cred_from  # noqa: B018 - missing in other implementations
        except (OSError, AttributeError) as error:
            raise KerberosUnavailable(
                f"{_GSSAPI} is missing: install {_PACKAGE} (Debian, Ubuntu) or krb5-libs"
            ) from error
        for name in ("gss_import_name", "gss_acquire_cred_from", "gss_accept_sec_context", "gss_init_sec_context"):
            getattr(self._gss, name).restype = c_uint32
        for name in ("gss_wrap", "gss_unwrap", "gss_display_name", "gss_display_status"):
            getattr(self._gss, name).restype = c_uint32

    def default_realm(self) -> str:
        context, text = c_void_p(), c_char_p()
        if self._krb5.krb5_init_context(byref(context)):
            return ""
        try:
            if self._krb5.krb5_get_default_realm(context, byref(text)):
                return ""
            realm = (text.value or b"").decode()
            self._krb5.krb5_free_default_realm(context, text)
            return realm
        finally:
            self._krb5.krb5_free_context(context)

    def acceptor(self, keytab: str | None, principal: str | None) -> _Acceptor:
        name = None if principal is None else self._name(principal, _PRINCIPAL)
        credentials = self._acquire(name, _ACCEPT, {} if keytab is None else {"keytab": keytab})
        return _Acceptor(self, credentials)

    def initiate(self, keytab: str | None, principal: str | None, service: str, host: str) -> _Context:
        target = self._name(f"{service}@{host}", _SERVICE)
        name = None if principal is None else self._name(principal, _PRINCIPAL)
        # The tickets stay in memory, in a cache of this principal.
        store = {} if keytab is None else {"client_keytab": keytab, "ccache": f"MEMORY:barnabas-{principal}"}
        return _Context(self, self._acquire(name, _INITIATE, store), target)

    # -- what the objects below call

    def call(self, function: str, *arguments: Any) -> int:
        """Calls a function of the GSSAPI. Returns its code; raises KerberosError for an error."""
        minor = c_uint32()
        code: int = getattr(self._gss, function)(byref(minor), *arguments)
        if code & _ERRORS:
            text = f"{self._status(code, _STATUS_CODE)}: {self._status(minor.value, _MECHANISM_CODE)}"
            raise KerberosError(f"{function}: {text}")
        return code

    def taken(self, buffer: _Buffer) -> bytes:
        """Returns the content of a buffer of the library, and releases it."""
        data = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
        self._gss.gss_release_buffer(byref(c_uint32()), byref(buffer))
        return data

    def release(self, function: str, handle: c_void_p, *more: Any) -> None:
        if handle.value:
            getattr(self._gss, function)(byref(c_uint32()), byref(handle), *more)

    def shown(self, name: c_void_p) -> str:
        """Returns a name as text, and releases it."""
        buffer = _Buffer()
        self.call("gss_display_name", name, byref(buffer), None)
        data = self.taken(buffer)
        self.release("gss_release_name", name)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise KerberosError(f"the name {data!r} is not UTF-8") from None

    def _name(self, text: str, kind: _Oid) -> _Name:
        name = _Name(self)
        self.call("gss_import_name", byref(_given(text.encode())), byref(kind), byref(name.handle))
        return name

    def _acquire(self, name: _Name | None, usage: int, values: dict[str, str]) -> _Credentials:
        pairs = [(key.encode(), value.encode()) for key, value in values.items()]
        elements = (_Element * len(pairs))(*(_Element(key, value) for key, value in pairs))
        store = byref(_Store(len(pairs), elements)) if pairs else None
        found = _Credentials(self)
        self.call(
            "gss_acquire_cred_from",
            None if name is None else name.handle,
            c_uint32(0xFFFFFFFF),
            byref(_MECHANISMS),
            c_int(usage),
            store,
            byref(found.handle),
            None,
            None,
        )
        return found

    def _status(self, code: int, kind: int) -> str:
        buffer, more = _Buffer(), c_uint32()
        self._gss.gss_display_status(
            byref(c_uint32()), c_uint32(code), c_int(kind), byref(_KERBEROS), byref(more), byref(buffer)
        )
        return self.taken(buffer).decode("utf-8", "replace")


def _given(data: bytes) -> _Buffer:
    """Returns a buffer that points to the data, which must live as long as the buffer."""
    return _Buffer(len(data), ctypes.cast(ctypes.c_char_p(data), c_void_p))


class _Name:
    """A name of the library."""

    def __init__(self, library: KerberosLibrary) -> None:
        self._library = library
        self.handle = c_void_p()

    def __del__(self) -> None:
        self._library.release("gss_release_name", self.handle)


class _Credentials:
    """Keys of a service, or tickets of a client."""

    def __init__(self, library: KerberosLibrary) -> None:
        self._library = library
        self.handle = c_void_p()

    def __del__(self) -> None:
        self._library.release("gss_release_cred", self.handle)


class _Acceptor:
    def __init__(self, library: KerberosLibrary, credentials: _Credentials) -> None:
        self._library = library
        self._credentials = credentials

    def accept(self) -> _Context:
        return _Context(self._library, self._credentials)


class _Context:
    """One side of an authentication (a `common.kerberos.SecurityContext`); the initiator's has a target."""

    def __init__(self, library: KerberosLibrary, credentials: _Credentials, target: _Name | None = None) -> None:
        self._library = library
        self._credentials = credentials
        self._target = target
        self._handle = c_void_p()
        self.is_established = False
        self.initiator = ""

    def __del__(self) -> None:
        self._library.release("gss_delete_sec_context", self._handle, None)

    def step(self, token: bytes) -> bytes:
        output = _Buffer()
        try:
            code = self._accept(token, output) if self._target is None else self._initiate(token, output)
        finally:
            # A token that comes with an error is an error message for the peer, and is not sent here.
            reply = self._library.taken(output)
        self.is_established = code == _COMPLETE
        return reply

    def _initiate(self, token: bytes, output: _Buffer) -> int:
        assert self._target is not None, "an initiator has a target"
        return self._library.call(
            "gss_init_sec_context",
            self._credentials.handle,
            byref(self._handle),
            self._target.handle,
            byref(_KERBEROS),
            c_uint32(_FLAGS),
            c_uint32(0),
            None,
            byref(_given(token)) if token else None,
            None,
            byref(output),
            None,
            None,
        )

    def _accept(self, token: bytes, output: _Buffer) -> int:
        source = c_void_p()
        code = self._library.call(
            "gss_accept_sec_context",
            byref(self._handle),
            self._credentials.handle,
            byref(_given(token)),
            None,
            byref(source),
            None,
            byref(output),
            None,
            None,
            None,
        )
        if source.value:
            self.initiator = self._library.shown(source)
        return code

    def wrap(self, data: bytes) -> bytes:
        output = _Buffer()
        self._library.call("gss_wrap", self._handle, c_int(0), c_uint32(0), byref(_given(data)), None, byref(output))
        return self._library.taken(output)

    def unwrap(self, data: bytes) -> bytes:
        output = _Buffer()
        self._library.call("gss_unwrap", self._handle, byref(_given(data)), byref(output), None, None)
        return self._library.taken(output)
