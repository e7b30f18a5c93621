"""One kind, one answer at every edge."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from catalog.core import aws_errors, errors
from catalog.core.errors import (
    KINDS,
    Decision,
    Denied,
    Internal,
    LakeError,
    NotFound,
    Unavailable,
    Unverified,
    as_lake_error,
)


def test_the_table_is_the_documented_one() -> None:
    assert {kind.name: (kind.http_status, kind.exit_code, kind.decision.value) for kind in KINDS} == {
        "invalid": (400, 2, "dead-letter"),
        "not_found": (404, 1, "dead-letter"),
        "conflict": (409, 4, "retry"),
        "denied": (403, 1, "dead-letter"),
        "unverified": (422, 3, "dead-letter"),
        "unavailable": (503, 4, "retry"),
        "internal": (500, 1, "retry"),
    }


def test_every_kind_has_exactly_one_class_named_after_it() -> None:
    classes = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, LakeError)]
    by_kind = {cls.kind.name: cls.__name__ for cls in classes if cls is not LakeError}
    assert by_kind == {kind.name: kind.name.title().replace("_", "") for kind in KINDS}


def test_exit_code_four_means_worth_trying_again() -> None:
    for kind in KINDS:
        if kind.exit_code == 4:
            assert kind.decision is Decision.RETRY


def test_an_error_tells_itself_to_machines() -> None:
    error = Unverified("leaf 7 does not hold", subject="tile/0/000")
    assert error.as_dict() == {
        "kind": "unverified",
        "message": "leaf 7 does not hold",
        "subject": "tile/0/000",
    }


KINDS_OF_CORE = [cls for cls in LakeError.__subclasses__() if cls.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", KINDS_OF_CORE)
def test_an_error_is_read_back_as_it_was_told(cls: type[LakeError]) -> None:
    told = cls("it failed", subject="a.b").as_dict()
    again = errors.error_from(told)
    assert type(again) is cls and again.as_dict() == told
    assert isinstance(errors.error_from({"kind": "of tomorrow"}), Internal)


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("boom")])
def test_a_stranger_becomes_internal_and_keeps_its_name(error: Exception) -> None:
    known = as_lake_error(error)
    assert isinstance(known, Internal)
    assert type(error).__name__ in known.message
    assert as_lake_error(known) is known


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("AccessDenied", 403, Denied),
        ("SignatureDoesNotMatch", 403, Denied),
        ("EntityNotFoundException", 400, NotFound),
        ("NoSuchKey", 404, NotFound),
        ("SlowDown", 503, Unavailable),
        ("ThrottlingException", 400, Unavailable),
        ("InternalError", 500, Unavailable),
        ("ValidationException", 400, Internal),
    ],
)
def test_what_aws_refuses_is_said_in_the_lakes_own_words(code: str, status: int, expected: type[LakeError]) -> None:
    answer = {"Error": {"Code": code, "Message": "because"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    for explained in (aws_errors.translate_aws_errors, aws_errors.translate_errors):
        with pytest.raises(expected, match=r"gold\.tides") as raised, explained("gold.tides"):
            raise ClientError(answer, "GetTable")
        assert raised.value.subject == "gold.tides"


def test_no_answer_may_come_later_and_a_defect_passes_as_it_is() -> None:
    for explained in (aws_errors.translate_aws_errors, aws_errors.translate_errors):
        with pytest.raises(Unavailable, match="try again"), explained("gold.tides"):
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
        with pytest.raises(KeyError), explained("gold.tides"):
            raise KeyError("ours")


def refusal(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


@pytest.mark.parametrize(
    ("code", "status", "missing", "lost"),
    [
        ("NoSuchKey", 404, True, False),
        ("NoSuchVersion", 404, True, False),
        ("404", 404, True, False),  # the answer to a HEAD has no body
        ("EntityNotFoundException", 400, True, False),
        ("ResourceNotFoundException", 404, True, False),
        ("NoSuchBucket", 404, False, False),
        ("PreconditionFailed", 412, False, True),
        ("412", 412, False, True),
        ("ConditionalRequestConflict", 409, False, True),
        ("ConcurrentModificationException", 400, False, True),
        ("AccessDenied", 403, False, False),
        ("InternalError", 500, False, False),
    ],
)
def test_one_test_tells_what_is_missing_and_one_what_was_lost(
    code: str, status: int, missing: bool, lost: bool
) -> None:
    error = refusal(code, status)
    assert (aws_errors.is_missing(error), aws_errors.lost_race(error)) == (missing, lost)


def test_a_missing_bucket_is_a_missing_object_only_where_that_is_asked() -> None:
    assert aws_errors.is_missing(refusal("NoSuchBucket", 404), or_bucket=True)
    unanswered = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    assert not aws_errors.is_missing(unanswered, or_bucket=True) and not aws_errors.lost_race(unanswered)
