"""Latencies of the embedded cloud: from a seed, within their services' ranges; and the chain that was waited for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from infra.local.latency import OTHERS_MS, RANGES_MS, Latency, TimedRequest, critical_path
from infra.local.requests import Request


def _request(name: str) -> Request:
    return Request("person", "s3", "GET", f"/{name}", "", "GET")


def _timed(name: str, began: float, ended: float) -> TimedRequest:
    return TimedRequest(_request(name), began, ended)


def test_a_seed_gives_the_same_latencies_and_another_one_others() -> None:
    first, again, other = ([latency.draw("s3") for _ in range(20)] for latency in (Latency(1), Latency(1), Latency(2)))
    assert first == again
    assert first != other


@given(st.sampled_from([*RANGES_MS, "kinesis"]), st.integers())
def test_a_latency_is_within_its_services_range(service: str, seed: int) -> None:
    low, high = RANGES_MS.get(service, OTHERS_MS)
    assert low / 1000 <= Latency(seed).draw(service) <= high / 1000


def test_half_of_it_passes_before_the_request_and_half_after_it() -> None:
    events: list[object] = []
    latency = Latency(3, sleep=events.append)
    with latency.added(_request("a")):
        events.append("done")
    before, _, after = events
    assert before == after == Latency(3).draw("s3") / 2
    assert [entry.request.path for entry in latency.take()] == ["/a"]
    assert latency.take() == []


def test_the_path_leaves_out_what_ran_beside_it() -> None:
    timed = [_timed("a", 0, 2), _timed("beside", 0, 1), _timed("b", 2, 5), _timed("beside b", 2, 4), _timed("c", 5, 6)]
    assert [entry.request.path for entry in critical_path(timed)] == ["/a", "/b", "/c"]
    assert critical_path([]) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=20))
def test_the_path_ends_with_the_last_answer_and_its_requests_do_not_overlap(spans: list[tuple[int, int]]) -> None:
    timed = [_timed(str(number), began, began + length) for number, (began, length) in enumerate(spans)]
    path = critical_path(timed)
    assert path[-1].ended == max(entry.ended for entry in timed)
    assert all(first.ended <= second.began for first, second in pairwise(path))
