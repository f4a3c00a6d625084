"""The page: its built files. Where they are missing, one line says how to build them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

STATIC: Final = Path(__file__).parent / "static"
PAGE: Final = "/index.html"
#: The place of the session in the page. A script of this type is data: no browser runs it.
_NO_SESSION: Final = b'<script id="session" type="application/json">null</script>'
HOW_TO_BUILD: Final = "the page of the console is not built: run `make setup`, or install a wheel, which has it"
_HASHED: Final = re.compile(r"[.-][0-9A-Za-z_]{8,}\.[a-z0-9]+$")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".map": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}


class Pages:
    """The files of the page, read once. Any other path belongs to the page itself, which routes in the browser."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._files: dict[str, bytes] = {}
        if folder.is_dir():
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    self._files["/" + path.relative_to(folder).as_posix()] = path.read_bytes()

    @property
    def is_built(self) -> bool:
        return PAGE in self._files

    def file_of(self, path: str) -> str | None:
        """Returns the file that answers a path: of any path that is no file it is the page. None: there is no such
        file.
        """
        if path in self._files and not path.endswith(".gz"):
            return path
        return None if path.startswith(("/api/", "/assets/")) or _suffix(path) in _TYPES else PAGE

    def page(self, session: bytes = b"null", first: str | None = None) -> Response:
        """Returns the page with a session, as JSON, and with the address of its first request. Nobody stores it,
        because it has the token of the session.
        """
        data = self._files.get(PAGE)
        if data is None:
            return Response(HOW_TO_BUILD + "\n", 503, media_type="text/plain; charset=utf-8")
        # "<" alone has a meaning within a script element, and JSON has it only in strings.
        embedded = _NO_SESSION.replace(b"null", session.replace(b"<", b"\\u003c"))
        if first is not None:
            address = first.replace("&", "&amp;").encode()
            embedded = b'<link rel="preload" as="fetch" crossorigin href="%s">\n    %s' % (address, embedded)
        data = data.replace(_NO_SESSION, embedded)
        return Response(data, headers={"cache-control": "no-store"}, media_type=_TYPES[".html"])

    def answer(self, request: Request) -> Response:
        """Returns one of the files; the page without a session."""
        path = self.file_of(request.url.path)
        if path is None:
            return Response("not found\n", 404, media_type="text/plain; charset=utf-8")
        if path == PAGE:
            return self.page()
        data = self._files[path]
        is_kept = path.startswith("/assets/") and _HASHED.search(path) is not None
        headers = {
            "cache-control": "public, max-age=31536000, immutable" if is_kept else "no-cache",
            "vary": "accept-encoding",
        }
        packed = self._files.get(path + ".gz")
        if packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            data, headers["content-encoding"] = packed, "gzip"
        return Response(data, headers=headers, media_type=_TYPES.get(_suffix(path), "application/octet-stream"))


def _suffix(path: str) -> str:
    return Path(path).suffix.lower()
