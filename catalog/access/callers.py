"""The caller of a request: who API Gateway says it is, and what its roles allow. Pure.

A caller that may not read a table is told what is told of a table that does not exist: nothing leaks whether it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from catalog.access.roles import Level, Role, level_on
from catalog.errors import Denied, NotFound

ROLE_CLAIMS = ("roles", "cognito:groups")
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
        """NotFound if the caller may not even read the table, Denied if it may but no more."""
        if self.may(level, table):
            return
        if not self.may(Level.READ, table):
            raise no_table(table)
        raise Denied(f"{self.subject} may read {table}, but not {_VERBS[level]} it: ask for the role", subject=table)

    def readable(self, tables: Iterable[str]) -> list[str]:
        return [table for table in tables if self.may(Level.READ, table)]


def no_table(table: str) -> NotFound:
    """The one sentence about a table that is not there, or not for this caller."""
    return NotFound(f"there is no table {table}, or none that you may read", subject=table)


def caller_of(authorizer: Mapping[str, Any] | None, principals: Mapping[str, Iterable[str]] | None = None) -> Caller:
    """From `requestContext.authorizer` of payload format 2.0. Denied if there is no identity in it.

    A token's roles are in its claims `roles` or `cognito:groups`, or are scopes `strandline/<role>`. A signed
    request's are those `principals` gives for its ARN; patterns may hold `*`.
    """
    identity = authorizer or {}
    if isinstance(token := identity.get("jwt"), Mapping):
        claims: Mapping[str, Any] = token.get("claims") or {}
        named = [name for claim in ROLE_CLAIMS for name in _listed(claims.get(claim))]
        scopes = token.get("scopes") or _listed(claims.get("scope"))
        named += [scope.removeprefix(SCOPE_PREFIX) for scope in scopes if scope.startswith(SCOPE_PREFIX)]
        return Caller(str(claims.get("sub") or "somebody"), _roles(named))
    if isinstance(signer := identity.get("iam"), Mapping) and signer.get("userArn"):
        arn = str(signer["userArn"])
        given = (roles for pattern, roles in (principals or {}).items() if fnmatchcase(arn, pattern))
        return Caller(arn, _roles(name for roles in given for name in roles))
    raise Denied("the request has no identity: send a token, or sign it")


def _listed(claim: Any) -> list[str]:
    """API Gateway hands a list on as the text `[a b]`; issuers write one role as plain text."""
    if isinstance(claim, (list, tuple)):
        return [str(one) for one in claim]
    return [] if claim is None else str(claim).removeprefix("[").removesuffix("]").replace(",", " ").split()


def _roles(names: Iterable[str]) -> tuple[Role, ...]:
    return tuple(dict.fromkeys(role for role in map(Role.parse, names) if role is not None))
