"""The page at the gateway's root: static files, and a session with a token for a browser on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from werkzeug.wrappers import Request, Response

FILES = Path(__file__).parent.parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
SESSION = "/_page/session"
# The page loads nothing from other origins, and no other page may frame it.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
LOOPBACK = ("127.0.0.1", "localhost")

Session = Callable[[], dict[str, str]]


def page_response(request: Request, path: str, session: Session | None) -> Response | None:
    """The response for a path of the page, or None for any other path.

    The session holds a token, so it is served only for a loopback host name: a foreign name that resolves to loopback
    (DNS rebinding) gets 403.
    """
    if session is None or request.method != "GET":
        return None
    if path == SESSION:
        if request.host.partition(":")[0] not in LOOPBACK:
            return Response("open the page at 127.0.0.1 or localhost", 403)
        return Response(json.dumps(session()), 200, HEADERS, mimetype="application/json")
    name = path.removeprefix("/") or "index.html"
    file = FILES / name
    if "/" in name or file.suffix not in TYPES or not file.is_file():
        return None
    return Response(file.read_bytes(), 200, HEADERS, mimetype=TYPES[file.suffix])
