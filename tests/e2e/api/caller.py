"""The deployed API as one caller sees it, and the tables its tests use."""

from __future__ import annotations

from typing import Any

import httpx

from tests.waiting import wait_until

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
PROBLEM = "application/problem+json"
COLUMNS = {"station": "string", "metres": "double"}
ROWS = [{"station": "Brest", "metres": 4.2}, {"station": "Newlyn", "metres": 3.1}]


class Api:
    """The deployed API as one caller sees it. Every answer is checked for what all answers have."""

    def __init__(self, http: httpx.Client, endpoint: str, token: str | None) -> None:
        self._http, self._endpoint, self._token = http, endpoint, token

    def __call__(self, method: str, path: str, *, headers: dict[str, str] | None = None, **rest: Any) -> httpx.Response:
        sent = dict(headers or {})
        if self._token is not None:
            sent.setdefault("Authorization", f"Bearer {self._token}")
        answer = self._http.request(method, self._endpoint + path, headers=sent, **rest)
        if (
            answer.status_code not in (401, 403, 413) or answer.headers["content-type"] == PROBLEM
        ):  # not the gateway's own
            assert answer.headers["x-request-id"] and answer.headers["x-correlation-id"]
        if answer.status_code >= 400 and answer.headers["content-type"] == PROBLEM:
            said = answer.json()
            assert said["status"] == answer.status_code and said["instance"] == answer.headers["x-request-id"]
        return answer

    def get(self, path: str, **rest: Any) -> httpx.Response:
        return self("GET", path, **rest)

    def post(self, path: str, body: Any, **rest: Any) -> httpx.Response:
        return self("POST", path, json=body, **rest)

    def get_when_ready(self, path: str) -> httpx.Response:
        """The first 200 to a GET: readers of the timeline may be a second behind it."""
        return wait_until(lambda: ok(self.get(path)), f"GET {path} to respond with 200")

    def post_when_ready(self, path: str, body: Any) -> httpx.Response:
        """The first 200 to a POST that changes nothing, a query for example."""
        return wait_until(lambda: ok(self.post(path, body)), f"POST {path} to respond with 200")

    def make(self, name: str, **shape: Any) -> str:
        made = self.post("/tables", {"name": name, "columns": COLUMNS, **shape})
        assert made.status_code == 201, made.text
        return name

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows = self.get(f"/tables/{table}/rows").json()["rows"]
        return sorted(rows, key=lambda row: str(row["station"]))


def ok(answer: httpx.Response) -> httpx.Response | None:
    return answer if answer.status_code == 200 else None


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == PROBLEM, answer.text
    return answer.status_code, answer.json()["type"].removeprefix("urn:strandline:")
