"""The API's routes. The stack deploys exactly these, and the function serves exactly these.

Paths are API Gateway's: `{t}` is one segment, `{path+}` all remaining ones. A public route needs no identity, unless it
shows the timeline's entries and the stage keeps those for its readers.
"""

from __future__ import annotations

from dataclasses import dataclass

SIGNED_PREFIX = "/signed"
"""Below this prefix, all routes accept requests signed with AWS credentials instead of a token."""


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    public: bool = False
    shows_entries: bool = False
    """Entries name tables, with their counts and times; a stage decides who may read them."""

    def is_public(self, *, public_entries: bool) -> bool:
        """Whether it needs no identity, on a stage with that setting."""
        return self.public and (public_entries or not self.shows_entries)

    @property
    def key(self) -> str:
        """API Gateway's route key: `GET /tables/{t}`."""
        return f"{self.method} {self.path}"


ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", public=True),
    Route("GET", "/openapi.json", public=True),
    Route("GET", "/timeline/checkpoint", public=True),
    Route("GET", "/timeline/key", public=True),
    Route("GET", "/timeline/consistency", public=True),
    Route("GET", "/timeline/tile/entries/{path+}", public=True, shows_entries=True),
    Route("GET", "/timeline/tile/{level}/{path+}", public=True),
    Route("GET", "/metrics-summary"),
    Route("GET", "/tables"),
    Route("POST", "/tables"),
    Route("GET", "/tables/{t}"),
    Route("PATCH", "/tables/{t}"),
    Route("DELETE", "/tables/{t}"),
    Route("GET", "/tables/{t}/schemas/{version}"),
    Route("GET", "/tables/{t}/rows"),
    Route("POST", "/tables/{t}/rows"),
    Route("GET", "/tables/{t}/rows/{key}/proof"),
    Route("POST", "/tables/{t}/rows/proof"),
    Route("POST", "/tables/{t}/delete"),
    Route("POST", "/tables/{t}/erasures"),
    Route("GET", "/tables/{t}/erasures/{id}"),
    Route("GET", "/tables/{t}/commits"),
    Route("GET", "/tables/{t}/changes"),
    Route("GET", "/tables/{t}/rule"),
    Route("PUT", "/tables/{t}/rule"),
    Route("DELETE", "/tables/{t}/rule"),
    Route("GET", "/commits/{id}"),
    Route("GET", "/commits/{id}/proof"),
    Route("GET", "/snapshots"),
    Route("POST", "/snapshots"),
    Route("GET", "/watermarks/{consumer}/{t}"),
    Route("PUT", "/watermarks/{consumer}/{t}"),
    Route("POST", "/ingest/uploads"),
    Route("GET", "/ingest/{digest}"),
    Route("POST", "/query"),
    Route("POST", "/statements"),
    Route("GET", "/queries/{id}"),
    Route("DELETE", "/queries/{id}"),
    Route("POST", "/search"),
)
