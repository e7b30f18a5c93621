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
STANDARD = {"iss": "https://issuer", "sub": "ada"}
ADA = "https://issuer#ada"
ROLES = st.builds(Role, st.sampled_from(Level), PATTERNS)


def shown(value: Any) -> str:
    """As API Gateway shows texts and lists of texts."""
    return f"[{' '.join(map(shown, value))}]" if isinstance(value, list) else str(value)


def header(**claims: Any) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({**STANDARD, **claims}).encode()).decode().rstrip("=")
    return f"Bearer e30.{payload}.c2ln"


def token(**claims: Any) -> tuple[dict[str, Any], None, str]:
    """What `caller_of` is given of a request with a token of these claims."""
    verified = {name: shown(value) for name, value in {**STANDARD, **claims}.items()}
    return {"jwt": {"claims": verified, "scopes": None}}, None, header(**claims)


def caller(*roles: str) -> Caller:
    return caller_of(*token(roles=[f"strandline:{role}" for role in roles]))


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
            "cognito:groups": ["strandline:reader:gold.notes", "other"],
            "roles": ["strandline:writer:bronze.*"],
            "scope": "strandline/admin:a.b admin",
            "scp": ["strandline/reader:a.*"],
        }
        assert caller_of(*token(**claims)) == Caller(
            ADA,
            (
                Role(Level.WRITE, "bronze.*"),
                Role(Level.READ, "gold.notes"),
                Role(Level.ADMIN, "a.b"),
                Role(Level.READ, "a.*"),
            ),
        )

    @pytest.mark.parametrize(
        "roles",
        [
            [],
            "",
            "strandline:admin",  # a list is demanded
            ["admin"],  # any program's
            ["reader:a.b"],
            ["strandline:administrator"],
            ["other:admin"],
            ["Strandline:admin"],
            ["strandline:strandline:admin"],
            ["strandline::admin"],
            ["strandline: admin"],
            "[strandline:admin]",
            "map[strandline:admin:true]",
            [["strandline:admin"]],
            ["x strandline:admin"],
            ["strandline:reader:a.b,strandline:admin"],
        ],
    )
    def test_claims_that_hold_no_role_give_none(self, roles: Any) -> None:
        assert caller_of(*token(roles=roles)).roles == ()

    @given(st.lists(st.text().filter(lambda name: Role.parse(name) is None)))
    def test_a_list_has_the_roles_that_are_its_members(self, names: list[str]) -> None:
        assert caller_of(*token(roles=[*names, "strandline:reader:a.b"])).roles == (Role(Level.READ, "a.b"),)

    def test_a_stage_has_a_prefix_of_its_own(self) -> None:
        scope = "strandline/admin lake-prod/reader:c.d"
        claims = token(roles=["strandline:admin", "lake-prod:reader:a.b"], scope=scope)
        assert caller_of(*claims, role_prefix="lake-prod:").roles == (Role(Level.READ, "a.b"), Role(Level.READ, "c.d"))

    @pytest.mark.parametrize("claim", ["iss", "sub"])
    @pytest.mark.parametrize("value", [None, "", 7, True, ["ada"], {"name": "ada"}])
    def test_who_it_is_needs_an_issuer_and_a_subject(self, claim: str, value: Any) -> None:
        with pytest.raises(Denied, match=f"claim {claim}"):
            caller_of(*token(**{claim: value}))

    def test_the_same_subject_of_another_issuer_is_somebody_else(self) -> None:
        subjects = {caller_of(*token(iss=iss, sub=sub)).subject for iss in ("https://a", "https://a/b") for sub in "xy"}
        assert len(subjects) == 4

    def test_an_issuer_cannot_end_in_a_subject(self) -> None:
        with pytest.raises(Denied, match="issuer"):
            caller_of(*token(iss="https://issuer#ada", sub="x"))

    def test_a_scope_of_another_program_is_none_of_ours(self) -> None:
        assert caller_of(*token(scope="admin openid other/admin")).roles == ()

    @pytest.mark.parametrize(
        "authorization", [None, "", "Bearer", "Bearer x.y.z", "Bearer e30.W10.x", header(roles=["strandline:admin"])]
    )
    def test_a_header_with_another_token_than_was_verified_is_refused(self, authorization: str | None) -> None:
        authorizer, _, _ = token(roles=["strandline:reader:a.b"])
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


@pytest.mark.parametrize(
    ("roles", "may"),
    [(["admin"], True), (["reader:*"], True), (["reader:gold.*", "admin:silver.*"], False), ([], False)],
)
def test_only_who_may_read_every_table_may_read_something_of_each(roles: list[str], may: bool) -> None:
    caller = Caller("ada", tuple(role for role in map(Role.parse, roles) if role))
    if may:
        caller.require_every_table("read it")
    else:
        with pytest.raises(Denied, match=r"reader:\*"):
            caller.require_every_table("read it")


def test_only_the_timeline_and_the_service_itself_are_public() -> None:
    public = [route.path for route in ROUTES if route.public]
    assert all(path.startswith("/timeline/") or path in ("/health", "/openapi.json") for path in public)
    assert len({route.key for route in ROUTES}) == len(ROUTES)
    kept = {r.path for r in ROUTES if r.is_public(public_entries=True)} - {
        r.path for r in ROUTES if r.is_public(public_entries=False)
    }
    assert kept == {"/timeline/tile/entries/{path+}"}
