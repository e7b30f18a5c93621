"""How a function tells its figures: one line of CloudWatch's embedded metric format on stdout. No trigger."""

from __future__ import annotations

from aws_lambda_powertools.metrics import EphemeralMetrics

from catalog.figures import NAMESPACE
from catalog.settings import load_settings


def figures_of(service: str) -> EphemeralMetrics:
    """Told at `flush_metrics`. Each figure costs by the month that it is seen in: tell none that nobody reads."""
    metrics = EphemeralMetrics(namespace=NAMESPACE, service=service)
    metrics.add_dimension(name="stage", value=load_settings().stage)
    return metrics
