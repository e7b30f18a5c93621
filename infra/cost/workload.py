"""How much is asked of a lake in a month, for three sizes and for none at all.

What one file, commit, request or job takes in requests and seconds is measured in bench/, and stated here once.
"""

from __future__ import annotations

from dataclasses import dataclass

DAYS = 30


@dataclass(frozen=True)
class Workload:
    name: str
    gb_stored: float
    files_a_day: int
    """Files that land; a tenth as many commits, since files that land together are committed together."""
    api_requests_a_day: int
    queries_a_day: int
    """Small enough to be answered by a function."""
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
    """What one piece of work takes."""

    seconds: float = 0
    s3_writes: float = 0
    s3_reads: float = 0
    glue: float = 0
    sqs: float = 0
    log_kb: float = 1


# An insert is six requests, ingestion reads the file once, its attestation is one more write; the sequencer adds four
# writes to a batch and reads what it attests.
FILE = Unit(seconds=0.3, s3_reads=1, sqs=3, log_kb=1)
COMMIT = Unit(seconds=0.5, s3_writes=9, s3_reads=8, glue=4, sqs=3, log_kb=2)
SWEEP = Unit(seconds=1.0, s3_writes=1, s3_reads=25, glue=10, sqs=3, log_kb=1)
API_REQUEST = Unit(seconds=0.05, s3_reads=2, glue=1, log_kb=1)
QUERY = Unit(seconds=1.0, s3_reads=20, glue=2, log_kb=1)

# Lambda keeps five long polls of 20 seconds open on each queue it consumes, work or no work.
POLLS_A_MONTH = 5 * 3 * 60 * 24 * DAYS
GB_PER_VCPU = 4
# What the functions tell of themselves when there is work: eight figures of ingestion, two of the sequencer.
FIGURES = 10
# With a bucket key S3 asks KMS once for many objects.
KMS_PER_OBJECT_REQUEST = 0.01
# A scheduled job that finds nothing to do: a driver and an executor of 2 vCPU each, for three minutes.
EMPTY_JOB_VCPU_HOURS = 2 * 2 * 3 / 60
IMAGE_GB = 0.5
