"""Whether a scheduled job has anything to do: a few requests, where starting Spark to find out costs cents each time.

A job has something to do if the tables that it reads changed since its last start, or if that run did not end well. And
once a week in any case, because some work comes with time: snapshots grow old, objects decay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, Field

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, translate_aws_errors

WEEK_MS = 7 * 24 * 3600 * 1000
RUNNING = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING", "CANCELLING")


class DueJob(BaseModel):
    """A schedule's event: the job that is due, unless it has nothing to do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: str = Field(pattern=r"^[a-z_-]{1,64}$", description="the schedule's name; a job may have several")
    job: str = Field(pattern=r"^[a-z_]{1,64}$")
    arguments: tuple[str, ...] = ()
    timeout_minutes: int = Field(gt=0)
    databases: tuple[str, ...] = Field(default=(), description="those whose tables it reads; none: all")
    execution_id: str = Field(min_length=1, max_length=64, description="the same for each delivery of one event")


@dataclass(frozen=True)
class LastStart:
    """What a schedule's last start was for: kept as an object."""

    state: str
    job_run_id: str
    at_ms: int


def state_of(tables: Mapping[str, str | None], databases: tuple[str, ...]) -> str | None:
    """A digest of the metadata files of the databases' tables; None if they have none."""
    chosen = {name: file for name, file in tables.items() if not databases or name.partition(".")[0] in databases}
    return sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest() if chosen else None


def reason_to_start(state: str | None, last: LastStart | None, last_run: str | None, now_ms: int) -> str | None:
    """Why the job should start now; None: it has nothing to do. `last_run` is EMR's state of the last start's run."""
    if state is None or last_run in RUNNING:
        return None
    if last is None:
        return "it never ran"
    if last_run != "SUCCESS":
        return "its last run did not succeed"
    if last.state != state:
        return "tables changed"
    return "it has not run for a week" if now_ms - last.at_ms >= WEEK_MS else None


def read_last_start(s3: Any, bucket: str, schedule: str) -> LastStart | None:
    key = _key(schedule)
    with translate_aws_errors(key):
        try:
            return LastStart(**json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read()))
        except ClientError as error:
            if is_missing(error):
                return None
            raise


def store_last_start(s3: Any, bucket: str, schedule: str, start: LastStart) -> None:
    """After the start: if this is lost, the next event starts a run that finds nothing to do."""
    with translate_aws_errors(_key(schedule)):
        s3.put_object(Bucket=bucket, Key=_key(schedule), Body=json.dumps(asdict(start)).encode())


def _key(schedule: str) -> str:
    return f"{s3_layout.JOBS}starts/{schedule}.json"
