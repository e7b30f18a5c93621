"""The page at the gateway's root: plain files, and a token for whoever opens it on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from werkzeug.wrappers import Request, Response

FILES = Path(__file__).parent.parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
SESSION = "/_page/session"
# Nothing from elsewhere is loaded, and nothing else may frame or feed the page.
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


def answer_page(request: Request, path: str, session: Session | None) -> Response | None:
    """The page's answer, or None if the path is not the page's.

    The session holds a token, so it is told only to a browser that asked for this machine by its own name:
    a stranger's name that resolves to loopback gets nothing.
    """
    if session is None or request.method != "GET":
        return None
    if path == SESSION:
        if request.host.partition(":")[0] not in LOOPBACK:
            return Response("ask by the name 127.0.0.1", 403)
        return Response(json.dumps(session()), 200, HEADERS, mimetype="application/json")
    name = path.removeprefix("/") or "index.html"
    file = FILES / name
    if "/" in name or file.suffix not in TYPES or not file.is_file():
        return None
    return Response(file.read_bytes(), 200, HEADERS, mimetype=TYPES[file.suffix])
