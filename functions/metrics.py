"""Metrics of a function: one line of CloudWatch's embedded metric format on stdout. Not a handler."""

from __future__ import annotations

from aws_lambda_powertools.metrics import EphemeralMetrics

from catalog import load_settings
from catalog.core.metrics import NAMESPACE


def function_metrics(service: str) -> EphemeralMetrics:
    """Sent by `flush_metrics`. CloudWatch charges for each metric per month: send none that is not read."""
    metrics = EphemeralMetrics(namespace=NAMESPACE, service=service)
    metrics.add_dimension(name="stage", value=load_settings().stage)
    return metrics
