"""Selects the API, stage and route of a request, with API Gateway's order of preference. Pure functions.

A route matches the whole path. The most specific path wins, then a named method over ANY, then $default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from infra.local.gateway.apis import Api, Route

API_PREFIX = "/_api/"

_EXACT, _PARAMETER, _GREEDY = 0, 1, 2


@dataclass(frozen=True)
class Match:
    route: Route
    parameters: dict[str, str]


def choose_api(apis: Mapping[str, Api], host: str, path: str) -> tuple[Api | None, str]:
    """The API of a request, and the path within it.

    On AWS the host name selects the API. On loopback the prefix `/_api/<id>` does, and a single API needs neither.
    """
    if path.startswith(API_PREFIX):
        api_id, _, api_path = path.removeprefix(API_PREFIX).partition("/")
        return apis.get(api_id), f"/{api_path}"
    label = host.partition(".")[0]
    if label in apis and ".execute-api." in host:
        return apis[label], path
    return (next(iter(apis.values())) if len(apis) == 1 else None), path


def choose_stage(api: Api, path: str) -> tuple[dict[str, Any] | None, str]:
    """The stage and the path without it. The stage is the first segment if it names one, else $default, else None."""
    name, _, stage_path = path.removeprefix("/").partition("/")
    if name in api.stages and name != "$default":
        return api.stages[name], f"/{stage_path}"
    return api.stages.get("$default"), path


def choose_route(api: Api, method: str, path: str) -> Match | None:
    candidates = []
    for route in api.routes:
        route_method, _, template = route.key.partition(" ")
        if route.key == "$default" or route_method not in ("ANY", method):
            continue
        matched = _match(template, path)
        if matched is not None:
            rank, parameters = matched
            candidates.append(((rank, route_method == "ANY"), Match(route, parameters)))
    if candidates:
        return min(candidates, key=lambda candidate: candidate[0])[1]
    return next((Match(route, {}) for route in api.routes if route.key == "$default"), None)


def _match(template: str, path: str) -> tuple[tuple[int, ...], dict[str, str]] | None:
    """The rank of each segment's match (lower is more specific) and the path parameters; None without a match."""
    pattern, segments = _segments(template), _segments(path)
    rank: list[int] = []
    parameters: dict[str, str] = {}
    for index, segment in enumerate(pattern):
        if segment.startswith("{") and segment.endswith("+}"):
            if not any(segments[index:]):
                return None
            parameters[segment[1:-2]] = unquote("/".join(segments[index:]))
            return (*rank, _GREEDY), parameters
        if index >= len(segments):
            return None
        if segment.startswith("{") and segment.endswith("}"):
            if not segments[index]:
                return None
            parameters[segment[1:-1]] = unquote(segments[index])
            rank.append(_PARAMETER)
        elif segment == unquote(segments[index]):
            rank.append(_EXACT)
        else:
            return None
    return (tuple(rank), parameters) if len(segments) == len(pattern) else None


def _segments(path: str) -> list[str]:
    return path.removeprefix("/").split("/")
