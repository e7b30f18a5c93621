"""The caller of a request, as API Gateway identified it, and what its roles allow. Pure.

A caller that may not read a table gets the same error as for a table that does not exist, so it cannot learn whether
the table exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from catalog.access.claims import Claims
from catalog.access.roles import Level, Role, level_on
from catalog.core.errors import Denied, NotFound

ROLE_CLAIMS = ("roles", "cognito:groups")
SCOPE_CLAIMS = ("scope", "scp")  # as API Gateway's authorizer reads them
SCOPE_PREFIX = "strandline/"
_VERBS = {Level.READ: "read", Level.WRITE: "write to", Level.ADMIN: "administer"}


@dataclass(frozen=True, slots=True)
class Caller:
    subject: str
    roles: tuple[Role, ...] = ()

    def may(self, level: Level, table: str) -> bool:
        allowed = level_on(self.roles, table)
        return allowed is not None and allowed >= level

    def require(self, level: Level, table: str) -> None:
        """NotFound if the caller may not read the table, Denied if it may read it but lacks the level."""
        if self.may(level, table):
            return
        if not self.may(Level.READ, table):
            raise no_table(table)
        raise Denied(f"{self.subject} may read {table}, but not {_VERBS[level]} it: ask for the role", subject=table)

    def readable(self, tables: Iterable[str]) -> list[str]:
        return [table for table in tables if self.may(Level.READ, table)]


def no_table(table: str) -> NotFound:
    """The error for a table that does not exist, or that the caller may not read."""
    return NotFound(f"there is no table {table}, or none that you may read", subject=table)


def caller_of(
    authorizer: Mapping[str, Any] | None,
    principals: Mapping[str, Iterable[str]] | None = None,
    authorization: str | None = None,
) -> Caller:
    """The caller from `requestContext.authorizer` of payload format 2.0. Denied if it has no identity.

    A token's roles are in its claims `roles` and `cognito:groups`, or in scopes `strandline/<role>`; `authorization` is
    the request's Authorization header. A signed request has the roles that `principals` assigns to patterns (with `*`)
    that match its ARN.
    """
    identity = authorizer or {}
    if isinstance(token := identity.get("jwt"), Mapping):
        return _token_caller(Claims(token.get("claims") or {}, authorization))
    if isinstance(signer := identity.get("iam"), Mapping) and signer.get("userArn"):
        arn = str(signer["userArn"])
        assigned = (roles for pattern, roles in (principals or {}).items() if fnmatchcase(arn, pattern))
        return Caller(arn, _roles(name for roles in assigned for name in roles))
    raise Denied("the request has no identity: send a token, or sign it")


def _token_caller(claims: Claims) -> Caller:
    subject = claims.text("sub")
    if not subject:  # queries and idempotency keys belong to a subject
        raise Denied("the token has no subject: its issuer must set the claim sub to a string")
    roles = [name for claim in ROLE_CLAIMS for name in claims.members(claim)]
    scopes = [scope for claim in SCOPE_CLAIMS for scope in claims.scopes(claim)]
    roles += [scope.removeprefix(SCOPE_PREFIX) for scope in scopes if scope.startswith(SCOPE_PREFIX)]
    return Caller(subject, _roles(roles))


def _roles(names: Iterable[str]) -> tuple[Role, ...]:
    return tuple(dict.fromkeys(role for role in map(Role.parse, names) if role is not None))
