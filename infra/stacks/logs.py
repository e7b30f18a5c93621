"""Log groups, each with the stage's retention: none is kept for ever."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.stage import Stage

RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
}


def log_group(scope: Construct, id: str, *, stage: Stage, name: str) -> logs.LogGroup:
    """Encrypted with CloudWatch's own key, and deleted with its stack: lasting records are in the timeline."""
    return logs.LogGroup(
        scope,
        id,
        log_group_name=name,
        retention=RETENTION[stage.log_retention_days],
        removal_policy=RemovalPolicy.DESTROY,
    )
