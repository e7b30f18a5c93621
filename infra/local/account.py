"""What the embedded account says of itself, which moto does not: Lambda's account settings, and EMR's quotas."""

from __future__ import annotations

import json
from typing import Any

from infra.local.quotas import quotas
from infra.local.requests import Request

_EMR = "emr-serverless"


def answer(request: Request, body: bytes) -> dict[str, Any] | None:
    """The response to GetAccountSettings of Lambda and to ListServiceQuotas of EMR Serverless; None: not ours."""
    if request.service == "lambda" and request.path.rstrip("/").endswith("/account-settings"):
        limit = quotas().lambda_concurrency
        return {"AccountLimit": {"ConcurrentExecutions": limit}, "AccountUsage": {}}
    if request.action != "ListServiceQuotas" or json.loads(body or b"{}").get("ServiceCode") != _EMR:
        return None
    vcpus = {"ServiceCode": _EMR, "QuotaName": "Max concurrent vCPUs per account", "Value": quotas().emr_vcpus}
    return {"Quotas": [vcpus]}
