"""Who may do what: roles parse strictly, more rights include fewer, and what may not be read does not exist."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.access.callers import Caller, caller_of
from catalog.access.roles import Level, Role, level_on
from catalog.access.routes import ROUTES
from catalog.core.errors import Denied, NotFound

NAMES = st.sampled_from(["gold", "silver", "notes", "tides", "a", "b"])
TABLES = st.builds("{}.{}".format, NAMES, NAMES)
PATTERNS = st.one_of(st.just("*"), TABLES, st.builds("{}.*".format, NAMES))
ROLES = st.builds(Role, st.sampled_from(Level), PATTERNS)


def shown(value: Any) -> str:
    """As API Gateway shows texts and lists of texts."""
    return f"[{' '.join(map(shown, value))}]" if isinstance(value, list) else str(value)


def header(**claims: Any) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"sub": "ada", **claims}).encode()).decode().rstrip("=")
    return f"Bearer e30.{payload}.c2ln"


def token(**claims: Any) -> tuple[dict[str, Any], None, str]:
    """What `caller_of` is given of a request with a token of these claims."""
    verified = {name: shown(value) for name, value in {"sub": "ada", **claims}.items()}
    return {"jwt": {"claims": verified, "scopes": None}}, None, header(**claims)


def caller(*roles: str) -> Caller:
    return caller_of(*token(roles=list(roles)))


@pytest.mark.parametrize(
    ("role", "table", "allowed"),
    [
        ("admin", "gold.notes", Level.ADMIN),
        ("admin:*", "gold.notes", Level.ADMIN),
        ("admin:gold.*", "gold.notes", Level.ADMIN),
        ("admin:gold.*", "golden.notes", None),
        ("writer:bronze.*", "bronze.tides", Level.WRITE),
        ("reader:gold.notes", "gold.notes", Level.READ),
        ("reader:gold.notes", "gold.notes2", None),
        ("reader:gold.notes", "gold", None),
        ("reader:*", "gold.notes", Level.READ),
        ("reader:gold.*", "gold", None),
    ],
)
def test_a_role_covers_what_it_names_and_nothing_else(role: str, table: str, allowed: Level | None) -> None:
    parsed = Role.parse(role)
    assert parsed is not None
    assert level_on([parsed], table) == allowed


@pytest.mark.parametrize(
    "text",
    ["", "reader", "writer", "Admin", "admin:", "owner:gold.*", "reader:gold", "reader:*.notes", "reader:gold.n*",
     "reader:gold.notes ", "reader:gold.notes\n", "reader:gold.*.x", "reader:Gold.notes", "reader:gold.notes,admin"],
)  # fmt: skip
def test_what_is_no_role_gives_nothing(text: str) -> None:
    assert Role.parse(text) is None


@given(st.lists(ROLES), ROLES, TABLES)
def test_another_role_never_takes_anything_away(roles: list[Role], more: Role, table: str) -> None:
    assert (level_on([*roles, more], table) or 0) >= (level_on(roles, table) or 0)


@given(st.lists(ROLES), TABLES)
def test_who_may_more_may_less(roles: list[Role], table: str) -> None:
    somebody = Caller("ada", tuple(roles))
    assert [somebody.may(level, table) for level in Level] == sorted(
        (somebody.may(level, table) for level in Level), reverse=True
    )


@given(st.lists(ROLES), st.lists(TABLES))
def test_lists_hold_exactly_what_may_be_read(roles: list[Role], tables: list[str]) -> None:
    somebody = Caller("ada", tuple(roles))
    readable = somebody.readable(tables)
    assert readable == [table for table in tables if somebody.may(Level.READ, table)]


class TestWhoIsTold:
    def test_without_a_role_a_table_is_not_there(self) -> None:
        with pytest.raises(NotFound):
            caller().require(Level.READ, "gold.notes")

    def test_a_writer_of_others_is_told_the_same(self) -> None:
        with pytest.raises(NotFound) as missing:
            caller("writer:bronze.*").require(Level.WRITE, "gold.notes")
        with pytest.raises(NotFound) as other:
            caller().require(Level.ADMIN, "gold.notes")
        assert missing.value.message == other.value.message

    def test_a_reader_who_writes_is_denied(self) -> None:
        with pytest.raises(Denied, match=r"may read gold\.notes, but not write"):
            caller("reader:gold.*").require(Level.WRITE, "gold.notes")


class TestIdentities:
    def test_roles_come_from_either_claim_and_from_scopes(self) -> None:
        claims = {
            "cognito:groups": ["reader:gold.notes", "other"],
            "roles": "writer:bronze.*",
            "scope": "strandline/admin:a.b admin",
            "scp": ["strandline/reader:a.*"],
        }
        assert caller_of(*token(**claims)) == Caller(
            "ada",
            (
                Role(Level.WRITE, "bronze.*"),
                Role(Level.READ, "gold.notes"),
                Role(Level.ADMIN, "a.b"),
                Role(Level.READ, "a.*"),
            ),
        )

    @pytest.mark.parametrize(
        "roles", [[], "", ["administrator"], "[admin]", "map[admin:true]", [["admin"]], ["x admin"]]
    )
    def test_claims_that_hold_no_role_give_none(self, roles: Any) -> None:
        assert caller_of(*token(roles=roles)).roles == ()

    @given(st.lists(st.text().filter(lambda name: Role.parse(name) is None)))
    def test_a_list_has_the_roles_that_are_its_members(self, names: list[str]) -> None:
        assert caller_of(*token(roles=[*names, "reader:a.b"])).roles == (Role(Level.READ, "a.b"),)

    def test_a_scope_of_another_program_is_none_of_ours(self) -> None:
        assert caller_of(*token(scope="admin openid other/admin")).roles == ()

    @pytest.mark.parametrize(
        "authorization", [None, "", "Bearer", "Bearer x.y.z", "Bearer e30.W10.x", header(roles=["admin"])]
    )
    def test_a_header_with_another_token_than_was_verified_is_refused(self, authorization: str | None) -> None:
        authorizer, _, _ = token(roles=["reader:a.b"])
        with pytest.raises(Denied, match="Authorization"):
            caller_of(authorizer, None, authorization)

    def test_a_signed_request_has_its_principals_roles(self) -> None:
        principals = {"arn:aws:sts::1:assumed-role/etl/*": ["writer:bronze.*"], "arn:aws:iam::1:user/ada": ["admin"]}
        signed = {"iam": {"userArn": "arn:aws:sts::1:assumed-role/etl/run-7"}}
        assert caller_of(signed, principals).roles == (Role(Level.WRITE, "bronze.*"),)
        assert caller_of({"iam": {"userArn": "arn:aws:iam::2:user/ada"}}, principals).roles == ()

    @pytest.mark.parametrize("authorizer", [None, {}, {"jwt": None}, {"iam": {}}, {"lambda": {"roles": "admin"}}])
    def test_without_an_identity_nobody_is_anybody(self, authorizer: dict[str, Any] | None) -> None:
        with pytest.raises(Denied):
            caller_of(authorizer)


def test_only_the_timeline_and_the_service_itself_are_public() -> None:
    public = [route.path for route in ROUTES if route.public]
    assert all(path.startswith("/timeline/") or path in ("/health", "/openapi.json") for path in public)
    assert len({route.key for route in ROUTES}) == len(ROUTES)
