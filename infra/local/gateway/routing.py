"""Which API, stage and route a request belongs to. Pure; the order of preference is API Gateway's.

A route matches by its whole path; the most specific path wins, then a named method over ANY, then $default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from infra.local.gateway.deployed import Api, Route

API_PREFIX = "/_api/"

_EXACT, _PARAMETER, _GREEDY = 0, 1, 2


@dataclass(frozen=True)
class Match:
    route: Route
    parameters: dict[str, str]


def choose_api(apis: Mapping[str, Api], host: str, path: str) -> tuple[Api | None, str]:
    """The API a request is for, and its path there.

    On AWS the host name decides. On loopback the prefix `/_api/<id>` does the same for any number of APIs,
    and the only API needs neither.
    """
    if path.startswith(API_PREFIX):
        api_id, _, rest = path.removeprefix(API_PREFIX).partition("/")
        return apis.get(api_id), f"/{rest}"
    label = host.partition(".")[0]
    if label in apis and ".execute-api." in host:
        return apis[label], path
    return (next(iter(apis.values())) if len(apis) == 1 else None), path


def choose_stage(api: Api, path: str) -> tuple[dict[str, Any] | None, str]:
    """The stage, and the path without it: the first segment when it names a stage, else $default,
    else none."""
    name, _, rest = path.removeprefix("/").partition("/")
    if name in api.stages and name != "$default":
        return api.stages[name], f"/{rest}"
    return api.stages.get("$default"), path


def choose_route(api: Api, method: str, path: str) -> Match | None:
    candidates = []
    for route in api.routes:
        wanted, _, template = route.key.partition(" ")
        if route.key == "$default" or wanted not in ("ANY", method):
            continue
        matched = _match(template, path)
        if matched is not None:
            rank, parameters = matched
            candidates.append(((rank, wanted == "ANY"), Match(route, parameters)))
    if candidates:
        return min(candidates, key=lambda candidate: candidate[0])[1]
    return next((Match(route, {}) for route in api.routes if route.key == "$default"), None)


def _match(template: str, path: str) -> tuple[tuple[int, ...], dict[str, str]] | None:
    """How specifically each segment of the template matches (lower is better), and the path parameters."""
    wanted, given = _segments(template), _segments(path)
    rank: list[int] = []
    parameters: dict[str, str] = {}
    for at, segment in enumerate(wanted):
        if segment.startswith("{") and segment.endswith("+}"):
            if not any(given[at:]):
                return None
            parameters[segment[1:-2]] = unquote("/".join(given[at:]))
            return (*rank, _GREEDY), parameters
        if at >= len(given):
            return None
        if segment.startswith("{") and segment.endswith("}"):
            if not given[at]:
                return None
            parameters[segment[1:-1]] = unquote(given[at])
            rank.append(_PARAMETER)
        elif segment == unquote(given[at]):
            rank.append(_EXACT)
        else:
            return None
    return (tuple(rank), parameters) if len(given) == len(wanted) else None


def _segments(path: str) -> list[str]:
    return path.removeprefix("/").split("/")
