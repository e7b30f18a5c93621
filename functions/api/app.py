"""The resolver, the decorator that declares a route by its key in catalog.access, and the function's clients."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache, wraps
from hashlib import sha256
from typing import Any, TypeVar, cast, get_type_hints

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from pydantic import BaseModel

from catalog import Lake, load_settings, open_lake
from catalog.access import ROUTES, SIGNED_PREFIX, Caller, IdempotencyStore, PresignedUrls, Route, UsageMeter
from catalog.core.logs import configure_logs
from catalog.formats import ApartReader
from functions.api.problems import MEDIA_TYPE, Problem
from functions.api.request import ApiRequest

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"

_BY_KEY = {route.key: route for route in ROUTES}
_GREEDY = "<path>"
Handler = TypeVar("Handler", bound=Callable[..., Response[Any]])


class Resolver(APIGatewayHttpResolver):
    """Powertools' resolver, in which a parameter named `path` matches the rest of the path, including slashes."""

    def __init__(self) -> None:
        super().__init__(enable_validation=True, strip_prefixes=[SIGNED_PREFIX])
        self.declared: dict[str, tuple[Route, re.Pattern[str]]] = {}

    def find(self, method: str, path: str) -> tuple[Route | None, list[str]]:
        """The route for the path and method, or None; and every method of the path."""
        inner = self._remove_prefix(path)
        routes = [route for route, rule in self.declared.values() if rule.match(inner)]
        return next((route for route in routes if route.method == method), None), sorted({r.method for r in routes})

    def on(self, *kinds: type[Exception]) -> Callable[[Handler], Handler]:
        """Declares the decorated function as the handler of these exceptions."""
        register: Any = self.exception_handler
        return cast(Callable[[Handler], Handler], register(list(kinds)))

    @staticmethod
    def _compile_regex(rule: str, base_regex: str = "^{}$") -> Any:
        head, greedy, _ = rule.replace(".", r"\.").partition(_GREEDY)
        if not greedy:
            return APIGatewayHttpResolver._compile_regex(head, base_regex)
        return re.compile(f"{APIGatewayHttpResolver._compile_regex(head, '^{}').pattern}(?P<path>.+)$")


app = Resolver()


def current_request() -> ApiRequest:
    """The request that is being handled: a function handles one at a time."""
    return cast(ApiRequest, app.context["request"])


def caller() -> Caller:
    """Who sent the current request. Only for routes that are not public."""
    return current_request().require_caller()


@cache
def lake() -> Lake:
    settings = load_settings()
    configure_logs("api", settings.log_level)
    return open_lake(settings)


@cache
def idempotency_store() -> IdempotencyStore:
    return IdempotencyStore(lake().s3, lake().settings.bucket)


@cache
def presigned_urls() -> PresignedUrls:
    return PresignedUrls(lake().settings)


@cache
def body_reader() -> ApartReader:
    """Starts no process yet."""
    return ApartReader()


@cache
def usage_meter() -> UsageMeter | None:
    """None if nothing is limited."""
    return UsageMeter(lake().settings) if lake().settings.limits_table else None


def serve(
    key: str,
    success: Mapping[int, Mapping[str, type[BaseModel] | None]],
    *,
    problems: tuple[int, ...] = (),
    tag: str,
) -> Callable[[Handler], Handler]:
    """Declares the handler of a route. `success`: status -> media type -> model of its responses; `problems`: statuses
    beyond 400, 500, 503 and, for a route that may need a token, 401, 404 and 429.

    The docstring's first line is the operation's summary in OpenAPI, the rest its description.
    """
    route = _BY_KEY[key]
    always_public = route.is_public(public_entries=False)
    rule = route.path.replace("{", "<").replace("+}", ">").replace("}", ">")
    responses: dict[int, Any] = {status: _documented(status, content) for status, content in success.items()}
    for status in {400, 500, 503, *problems, *(() if always_public else (401, 404, 429))}:
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
            # An empty requirement: on some stages it needs no token (OpenAPI 3.1, Security Requirement Object).
            security=None if always_public else [{"token": []}, *([{}] if route.public else [])],
        )(_without_return(function))
        app.declared[key] = (route, app._compile_regex(rule))
        return function

    return register


def respond(
    content: BaseModel | None = None, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response[str]:
    if content is None:
        return Response(status, headers=dict(headers or {}))
    return Response(status, JSON, content.model_dump_json(exclude_none=True), headers=dict(headers or {}))


def respond_cacheable(
    content: str | bytes, media_type: str, cache_control: str = "private, max-age=31536000, immutable"
) -> Response[Any]:
    """A cacheable response, with its ETag; 304 without a body if the client has it already."""
    etag = f'"{sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": cache_control}
    held = [tag.strip().removeprefix("W/") for tag in current_request().headers.get("if-none-match", "").split(",")]
    if etag in held or held == ["*"]:
        return Response(304, headers=headers)
    return Response(200, media_type, content, headers=headers)


def _documented(status: int, content: Mapping[str, type[BaseModel] | None]) -> dict[str, Any]:
    described = {media: {"model": model} if model else {"schema": _raw(media)} for media, model in content.items()}
    return {"description": "the result" if status < 300 else "see the headers", "content": described}


def _raw(media_type: str) -> dict[str, Any]:
    return {"type": "string"} if media_type.startswith("text/") else {"type": "string", "format": "binary"}


def _without_return(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without its return annotation, by which Powertools would validate the body, which is encoded."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()

    @wraps(function)
    def run(**arguments: Any) -> Any:
        return function(**arguments)

    del run.__wrapped__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(annotation=hints[p.name]) for p in parameters]
    )
    return run
