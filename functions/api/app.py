"""The resolver, and how a route is served: by its key in catalog.access.routes, with all its answers declared."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache, wraps
from hashlib import sha256
from typing import Any, TypeVar, cast, get_type_hints

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from pydantic import BaseModel

from catalog.access.links import Links
from catalog.access.once import Once
from catalog.access.routes import ROUTES, SIGNED_PREFIX, Route
from catalog.lake import Lake, open_lake
from catalog.logs import configure_logs
from catalog.settings import load_settings
from functions.api.asked import Asked
from functions.api.problems import MEDIA_TYPE, Problem

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"

_BY_KEY = {route.key: route for route in ROUTES}
_GREEDY = "<path>"
Handler = TypeVar("Handler", bound=Callable[..., Response[Any]])


class Resolver(APIGatewayHttpResolver):
    """Powertools' resolver, in which a parameter named `path` takes the rest, slashes and all."""

    def __init__(self) -> None:
        super().__init__(enable_validation=True, strip_prefixes=[SIGNED_PREFIX])
        self.declared: dict[str, tuple[Route, re.Pattern[str]]] = {}

    def find(self, method: str, path: str) -> tuple[Route | None, list[str]]:
        """The route that serves the path by this method; and every method the path is served by."""
        inner = self._remove_prefix(path)
        found = [route for route, rule in self.declared.values() if rule.match(inner)]
        return next((route for route in found if route.method == method), None), sorted({r.method for r in found})

    def on(self, *kinds: type[Exception]) -> Callable[[Handler], Handler]:
        """The decorated function answers these errors."""
        register: Any = self.exception_handler
        return cast(Callable[[Handler], Handler], register(list(kinds)))

    @staticmethod
    def _compile_regex(rule: str, base_regex: str = "^{}$") -> Any:
        head, greedy, _ = rule.replace(".", r"\.").partition(_GREEDY)
        if not greedy:
            return APIGatewayHttpResolver._compile_regex(head, base_regex)
        return re.compile(f"{APIGatewayHttpResolver._compile_regex(head, '^{}').pattern}(?P<path>.+)$")


app = Resolver()


def asked() -> Asked:
    """The request at hand: a function serves one at a time."""
    return cast(Asked, app.context["asked"])


@cache
def lake() -> Lake:
    settings = load_settings()
    configure_logs("api", settings.log_level)
    return open_lake(settings)


@cache
def once() -> Once:
    return Once(lake().s3, lake().settings.bucket)


@cache
def links() -> Links:
    return Links(lake().settings)


def serve(
    key: str,
    answers: Mapping[int, Mapping[str, type[BaseModel] | None]],
    *,
    problems: tuple[int, ...] = (),
    tag: str,
) -> Callable[[Handler], Handler]:
    """Serves a declared route. `answers`: status -> media type -> model; `problems`: statuses beyond the usual.

    The docstring is the operation's description, its first line the summary.
    """
    route = _BY_KEY[key]
    rule = route.path.replace("{", "<").replace("+}", ">").replace("}", ">")
    responses: dict[int, Any] = {status: _documented(status, content) for status, content in answers.items()}
    for status in {400, 500, 503, *problems, *(() if route.public else (401, 404))}:
        responses[status] = {"description": "a problem", "content": {MEDIA_TYPE: {"model": Problem}}}

    def register(function: Handler) -> Handler:
        summary, _, description = inspect.cleandoc(function.__doc__ or "").partition("\n")
        app.route(
            rule,
            route.method,
            responses=responses,
            operation_id=function.__name__,
            summary=summary,
            description=description.strip() or None,
            tags=[tag],
            security=None if route.public else [{"token": []}],
        )(_without_return(function))
        app.declared[key] = (route, app._compile_regex(rule))
        return function

    return register


def answer(
    content: BaseModel | None = None, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response[str]:
    if content is None:
        return Response(status, headers=dict(headers or {}))
    return Response(status, JSON, content.model_dump_json(exclude_none=True), headers=dict(headers or {}))


def unchanging(
    content: str | bytes, media_type: str, cache_control: str = "private, max-age=31536000, immutable"
) -> Response[Any]:
    """An answer that stays the same: with its ETag, and 304 without a body for who has it already."""
    etag = f'"{sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": cache_control}
    known = [tag.strip().removeprefix("W/") for tag in asked().headers.get("if-none-match", "").split(",")]
    if etag in known or known == ["*"]:
        return Response(304, headers=headers)
    return Response(200, media_type, content, headers=headers)


def _documented(status: int, content: Mapping[str, type[BaseModel] | None]) -> dict[str, Any]:
    described = {media: {"model": model} if model else {"schema": _raw(media)} for media, model in content.items()}
    return {"description": "as asked" if status < 300 else "see the headers", "content": described}


def _raw(media_type: str) -> dict[str, Any]:
    return {"type": "string"} if media_type.startswith("text/") else {"type": "string", "format": "binary"}


def _without_return(function: Callable[..., Any]) -> Callable[..., Any]:
    """Powertools would validate the body by the return annotation; ours is already the bytes to send."""
    hints = get_type_hints(function, include_extras=True)
    given = inspect.signature(function).parameters.values()

    @wraps(function)
    def run(**arguments: Any) -> Any:
        return function(**arguments)

    del run.__wrapped__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(annotation=hints[p.name]) for p in given]
    )
    return run
