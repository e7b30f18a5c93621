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
from catalog.access.roles import Level, Role, level_on, may_erase
from catalog.core.errors import Denied, NotFound
from catalog.core.settings import ROLE_PREFIX

ROLE_CLAIMS = ("roles", "cognito:groups")
SCOPE_CLAIMS = ("scope", "scp")  # as API Gateway's authorizer reads them
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

    def require_erase(self, table: str) -> None:
        """Denied without the role to erase rows of the table; NotFound if the caller may not read it either."""
        if may_erase(self.roles, table):
            return
        if not self.may(Level.READ, table):
            raise no_table(table)
        raise Denied(f"{self.subject} may not erase rows of {table}: ask for the role eraser:{table}", subject=table)

    def require_role(self, what: str) -> None:
        """Denied if the caller has no role at all: whoever may read nothing may not use the lake's time either."""
        if not any(role.level > Level.ERASE for role in self.roles):
            raise Denied(f"{self.subject} has no role, and may not {what}: ask for one, such as reader:<table>")

    def require_every_table(self, what: str) -> None:
        """Denied if the caller may not read all tables: for what shows something of each."""
        if not any(role.tables == "*" and role.level > Level.ERASE for role in self.roles):
            raise Denied(f"{self.subject} may not {what}: ask for the role reader:*")

    def readable(self, tables: Iterable[str]) -> list[str]:
        return [table for table in tables if self.may(Level.READ, table)]

    def writable(self, tables: Iterable[str]) -> list[str]:
        return [table for table in tables if self.may(Level.WRITE, table)]


def no_table(table: str) -> NotFound:
    """The error for a table that does not exist, or that the caller may not read."""
    return NotFound(f"there is no table {table}, or none that you may read", subject=table)


def caller_of(
    authorizer: Mapping[str, Any] | None,
    principals: Mapping[str, Iterable[str]] | None = None,
    authorization: str | None = None,
    role_prefix: str = ROLE_PREFIX,
) -> Caller:
    """The caller from `requestContext.authorizer` of payload format 2.0. Denied if it has no identity.

    A token's roles are the members of its list claims `roles` and `cognito:groups` that begin with the prefix, such as
    `strandline:reader:gold.*`, and its scopes `strandline/<role>`; `authorization` is the request's Authorization
    header. A signed request has the roles, without prefix, that `principals` assigns to patterns (with `*`) that match
    its ARN.
    """
    identity = authorizer or {}
    if isinstance(token := identity.get("jwt"), Mapping):
        return _token_caller(Claims(token.get("claims") or {}, authorization), role_prefix)
    if isinstance(signer := identity.get("iam"), Mapping) and signer.get("userArn"):
        arn = str(signer["userArn"])
        assigned = (roles for pattern, roles in (principals or {}).items() if fnmatchcase(arn, pattern))
        return Caller(arn, _roles(name for roles in assigned for name in roles))
    raise Denied("the request has no identity: send a token, or sign it")


def _token_caller(claims: Claims, role_prefix: str) -> Caller:
    names = [name for claim in ROLE_CLAIMS for name in claims.members(claim)]
    roles = [name.removeprefix(role_prefix) for name in names if name.startswith(role_prefix)]
    scopes = [scope for claim in SCOPE_CLAIMS for scope in claims.scopes(claim)]
    scope_prefix = f"{role_prefix.removesuffix(':')}/"  # OAuth's form: a resource server, then its scope
    roles += [scope.removeprefix(scope_prefix) for scope in scopes if scope.startswith(scope_prefix)]
    return Caller(_subject(claims), _roles(roles))


def _subject(claims: Claims) -> str:
    """`<iss>#<sub>`: a subject is unique only within its issuer. Queries and idempotency keys belong to it."""
    issuer, subject = claims.text("iss"), claims.text("sub")
    if not issuer or "#" in issuer:  # OpenID Connect: a URL without a fragment
        raise Denied("the token has no issuer: its claim iss must be the issuer's URL")
    if not subject:
        raise Denied("the token has no subject: its issuer must set the claim sub to a string")
    return f"{issuer}#{subject}"


def _roles(names: Iterable[str]) -> tuple[Role, ...]:
    return tuple(dict.fromkeys(role for role in map(Role.parse, names) if role is not None))
