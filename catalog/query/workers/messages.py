"""What a supervisor and its worker say to each other, as JSON: a query, its answer's head, a status, an error.

JSON and Arrow in both directions, never pickle: a worker runs what strangers wrote, and its supervisor must not run
what a worker sends.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from catalog.access import Caller, Level, Role
from catalog.core.errors import Invalid, LakeError, error_from
from catalog.core.point_in_time import PointLike, point_in_time
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.spark.spark_queries import QueryStatus


@dataclass(frozen=True)
class QueryRequest:
    """The arguments of `Queries.ask`, and the correlation id of the request that they came with.

    `seen_size`: the size of the timeline that the caller may have seen already; the query sees no less.
    """

    sql: str
    engine: Literal["auto", "lambda", "spark"]
    verify: bool
    id: str | None
    parameters: Any
    as_of: str | None
    fresh: bool
    limit_bytes: int | None
    caller: Caller | None
    limits: EngineLimits
    correlation_id: str | None
    seen_size: int | None = None
    addressed: int | None = None

    def encode(self) -> bytes:
        """Invalid if a parameter is not a JSON value."""
        record = asdict(self)
        if self.caller is not None:
            roles = [[role.level.value, role.tables] for role in self.caller.roles]
            record["caller"] = {"subject": self.caller.subject, "roles": roles}
        try:
            return json.dumps(record).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Invalid(f"the parameters are not JSON values: {error}") from None

    @classmethod
    def decode(cls, data: bytes | bytearray) -> Self:
        record = json.loads(data)
        if (caller := record["caller"]) is not None:
            roles = tuple(Role(Level(level), tables) for level, tables in caller["roles"])
            record["caller"] = Caller(caller["subject"], roles)
        return cls(**{**record, "limits": EngineLimits(**record["limits"])})


def point_text(as_of: PointLike | None) -> str | None:
    """The point in time as text, which means the same in the worker. Invalid if it is no point in time."""
    return None if as_of is None else str(point_in_time(as_of))


def encode_error(error: LakeError) -> bytes:
    position = {"row": error.row, "column": error.column} if isinstance(error, Invalid) else {}
    return json.dumps(error.as_dict() | position).encode()


def decode_error(data: bytes | bytearray) -> LakeError:
    return error_from(json.loads(data))


def encode_status(status: QueryStatus) -> bytes:
    record = {name: value for name, value in vars(status).items() if name != "error"}
    if status.error is not None:
        record["error"] = status.error.as_dict()
    return json.dumps(record).encode()


def decode_status(data: bytes | bytearray) -> QueryStatus:
    record = json.loads(data)
    if (error := record.get("error")) is not None:
        record["error"] = error_from(error)
    return QueryStatus(**record)
