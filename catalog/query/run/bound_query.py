"""A query that was parsed and bound to snapshots, and the keys under which its plan and its result are cached."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict

from catalog.core.point_in_time import PointLike, point_in_time
from catalog.query.bind.binding import Binding, QueryCaller
from catalog.query.plan.relation_names import AccessRules
from catalog.query.run.engine import Parameters
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.search import Searches
from catalog.query.sql.statement import Statement
from catalog.query.system.system_tables import NO_SYSTEM_TABLES, SystemTables


class QueryOptions(TypedDict, total=False):
    """Options of every query.

    `parameters`: a mapping for `$name`, a sequence for `$1`. `as_of`: a point in time for all tables without an AS OF
    of their own; by default the newest index. `fresh`: read each table at its newest snapshot, sequenced or not.
    `limit_bytes`: the maximum data to read in this process. `addressed`: the offset in the text of a table whose rows
    get their addresses, for statements that write.
    """

    parameters: Parameters
    as_of: PointLike | None
    caller: QueryCaller | None
    fresh: bool
    limit_bytes: int | None
    limits: EngineLimits | None
    addressed: int | None


@dataclass(frozen=True)
class BoundQuery:
    """`rules`: the access rules by table, as read once when the query was bound. `began`: on the monotonic clock."""

    sql: str
    options: QueryOptions
    statement: Statement
    binding: Binding
    rules: Mapping[str, AccessRules | None]
    searches: Searches
    engine_parameters: Mapping[str, Any]
    """The parameters that the engine gets: those that only search operators name are left out."""
    limits: EngineLimits
    began: float
    system: SystemTables = NO_SYSTEM_TABLES

    @property
    def caller(self) -> QueryCaller | None:
        return self.options.get("caller")

    @property
    def request(self) -> tuple[Any, ...]:
        """What the caller sent: two requests under one query id must agree on it."""
        as_of = self.options.get("as_of")
        parameters = _serialised(self.options.get("parameters"))
        point = None if as_of is None else str(point_in_time(as_of))
        return self.sql, parameters, point, self.options.get("fresh", False)

    @cached_property
    def lake_state(self) -> Hashable:
        """Everything of the lake and of the caller that the plan and the result depend on."""
        tables = sorted(self.binding.tables.items(), key=lambda item: (item[0][0], str(item[0][1])))
        snapshots = tuple(
            (
                name,
                str(as_of),
                table.relation.metadata.table_uuid,
                table.relation.snapshot_id,
                str(table.relation.schema),
            )
            for (name, as_of), table in tables
        )
        rules = tuple(repr(self.rules.get(name)) for name, *_ in snapshots)
        roles = tuple(map(str, self.caller.roles)) if self.caller is not None else None
        return snapshots, roles, rules, self.searches.versions()

    def plan_key(self) -> Hashable | None:
        """Everything that the plan of a search depends on.

        None for a query without a search, a volatile one, or one whose parameters cannot be serialised.
        """
        statement = self.statement
        if statement.volatile or not self.searches:
            return None
        try:
            parameters = json.dumps(self.engine_parameters, sort_keys=True)
        except TypeError:
            return None
        limit_bytes = self.options.get("limit_bytes")
        return statement.text, statement.refs, parameters, self.lake_state, self.limits, limit_bytes

    def result_key(self) -> Hashable | None:
        """Everything that the result depends on; None for a volatile query, whose result is never cached."""
        if self.statement.volatile or self.options.get("addressed") is not None:
            return None
        parameters = _serialised(self.engine_parameters)
        return self.statement.normalised, self.searches.values(), parameters, self.lake_state


def _serialised(parameters: Parameters) -> str:
    try:
        return json.dumps(parameters, sort_keys=True)
    except TypeError:
        return repr(parameters)
