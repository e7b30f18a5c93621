"""S3 answers 409 to a conditional write while another is under way: the loser looks what was written."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from botocore.exceptions import ClientError

from catalog.core.errors import Conflict
from catalog.timeline.log.publisher import PublishedCheckpoint, Publisher


class Busy:
    """Another publisher is writing every object: a conditional write gets 409, and a read what is there by then."""

    def __init__(self, there: bytes | None) -> None:
        self.there = there

    def put_object(self, **request: Any) -> dict[str, str]:
        if "IfNoneMatch" in request and not request["Key"].endswith("checkpoint"):
            raise _refusal("ConditionalRequestConflict", 409)
        return {"ETag": "1"}

    def get_object(self, **request: Any) -> dict[str, Any]:
        if self.there is None:
            raise _refusal("NoSuchKey", 404)
        return {"Body": BytesIO(self.there)}


def _refusal(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


def test_a_tile_that_another_writer_has_just_written_counts_as_published() -> None:
    publisher = Publisher(Busy(b"tile"), "lake")
    stands = publisher.publish(PublishedCheckpoint(), 1, b"note", lambda tile: b"tile", None)
    assert stands.size == 1


def test_a_tile_that_another_writer_gave_up_is_a_conflict_to_run_again() -> None:
    with pytest.raises(Conflict, match="run again"):
        Publisher(Busy(None), "lake").publish(PublishedCheckpoint(), 1, b"note", lambda tile: b"tile", None)
