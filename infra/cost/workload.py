"""The workload of a lake, for three sizes and for an idle one.

The requests and seconds of one file, commit, request or job were measured in bench/.
"""

from __future__ import annotations

from dataclasses import dataclass

DAYS = 30


@dataclass(frozen=True)
class Workload:
    name: str
    gb_stored: float
    files_a_day: int
    """Landed files. Files that land together share a commit: a tenth as many commits."""
    api_requests_a_day: int
    queries_a_day: int
    """Queries that run in the API's function."""
    job_vcpu_hours_a_day: float

    @property
    def commits_a_day(self) -> float:
        return self.files_a_day / 10


IDLE = Workload("idle", 0, 0, 0, 0, 0)
SMALL = Workload("small", 10, 1_000, 1_000, 200, 0.5)
MEDIUM = Workload("medium", 1_000, 20_000, 50_000, 5_000, 16)
LARGE = Workload("large", 50_000, 500_000, 2_000_000, 100_000, 400)
WORKLOADS = (IDLE, SMALL, MEDIUM, LARGE)


@dataclass(frozen=True)
class Unit:
    """The requests and seconds of one piece of work."""

    seconds: float = 0
    s3_writes: float = 0
    s3_reads: float = 0
    glue: float = 0
    sqs: float = 0
    log_kb: float = 1


# An insert makes six requests, ingestion reads the file once, and its attestation is one more write; the sequencer
# adds four writes for each batch and reads the objects that it checks.
FILE = Unit(seconds=0.3, s3_reads=1, sqs=3, log_kb=1)
COMMIT = Unit(seconds=0.5, s3_writes=9, s3_reads=8, glue=4, sqs=4, log_kb=2)
# A sweep lists databases, tables and vector tables (S3 bills a LIST like a write), and reads only what changed. Its
# message is sent, received, deleted, and its visibility is set.
SWEEP = Unit(seconds=0.3, s3_writes=1, s3_reads=2, glue=8, sqs=4, log_kb=1)
API_REQUEST = Unit(seconds=0.05, s3_reads=2, glue=1, log_kb=1)
QUERY = Unit(seconds=1.0, s3_reads=20, glue=2, log_kb=1)

# Lambda always has five long polls of 20 seconds open on each queue of an event source mapping.
POLLS_A_MONTH = 5 * 3 * 60 * 24 * DAYS
# The metrics that the functions emit when there is work: eight of ingestion, three of the sequencer.
FIGURES = 11
# With a bucket key S3 makes one KMS request for many objects.
KMS_PER_OBJECT_REQUEST = 0.01
# A schedule of a job: the starter lists databases and tables, reads its last start and EMR's record of it.
DUE = Unit(seconds=0.5, s3_reads=1, glue=8, sqs=0, log_kb=1)
# A run of the canary opens the lake anew and reads three tables in every way: about 40 GETs for each, and two LISTs.
CANARY = Unit(seconds=4, s3_writes=2, s3_reads=120, glue=20, log_kb=1)
# What a run takes before and after its work: EMR bills its workers from their start.
START_MINUTES = 3
IMAGE_GB = 0.5
