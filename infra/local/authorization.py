"""IAM on every request: what the deployed role of a function or of a job does not allow is denied, as on AWS.

People and the embedded cloud's own services are not restricted. Identity policies only: of the resource policies that
the stacks have, none grants anything to the lake's roles.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from threading import Lock
from typing import Any
from xml.sax.saxutils import escape

from infra.local.endpoint import Endpoint
from infra.local.permissions import Policies, RequestedAction, policies_of, required_actions
from infra.local.requests import Request

FUNCTION_PRINCIPAL, JOB_PRINCIPAL = "function.", "job."
# docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html: a changed policy takes effect after a moment.
KEPT_S = 5.0

RoleOf = Callable[[str], str | None]
"""The role's ARN of a job's principal; None if there is no such run."""


class Authorization:
    """Decides by the roles as they are deployed now, or were at most KEPT_S seconds ago."""

    def __init__(self, endpoint: Endpoint, job_role: RoleOf) -> None:
        self._endpoint, self._job_role = endpoint, job_role
        self._policies: dict[str, tuple[float, Policies | None]] = {}
        self._lock = Lock()

    def denied(self, request: Request) -> RequestedAction | None:
        """The first action of the request that the principal's role does not allow."""
        if not request.principal.startswith((FUNCTION_PRINCIPAL, JOB_PRINCIPAL)):
            return None
        policies = self._policies_for(request.principal)
        if policies is None:
            return None  # a process that was started without a deployed function
        return next((one for one in required_actions(request, self._endpoint) if not policies.allows(one)), None)

    def forget(self) -> None:
        """Makes changed policies take effect at once."""
        with self._lock:
            self._policies = {}

    def _policies_for(self, principal: str) -> Policies | None:
        with self._lock:
            read_at, policies = self._policies.get(principal, (-KEPT_S, None))
            if time.monotonic() - read_at >= KEPT_S:
                role = self._role(principal)
                policies = None if role is None else policies_of(self._endpoint, role)
                self._policies[principal] = time.monotonic(), policies
            return policies

    def _role(self, principal: str) -> str | None:
        if principal.startswith(JOB_PRINCIPAL):
            return self._job_role(principal)
        client, name = self._endpoint.client("lambda"), principal.removeprefix(FUNCTION_PRINCIPAL)
        try:
            return str(client.get_function_configuration(FunctionName=name)["Role"])
        except client.exceptions.ResourceNotFoundException:
            return None


def denial(request: Request, denied: RequestedAction) -> tuple[str, list[tuple[str, str]], bytes]:
    """Status, headers and body of AWS's answer to a request that is not allowed."""
    message = (
        f"User: {request.principal} is not authorized to perform: {denied.action} on resource: {denied.resource} "
        "because no identity-based policy allows the action"
    )
    headers: list[tuple[str, str]]
    if request.service == "s3":
        text = f"<Error><Code>AccessDenied</Code><Message>{escape(message)}</Message></Error>"
        status, headers, body = "403 Forbidden", [("Content-Type", "application/xml")], text.encode()
        if request.method == "HEAD":
            body = b""
    else:
        content: dict[str, Any] = {"__type": "AccessDeniedException", "message": message, "Message": message}
        # Services with a JSON protocol respond 400, those with REST paths 403.
        status = "403 Forbidden" if request.action == request.method else "400 Bad Request"
        headers = [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", "AccessDeniedException")]
        body = json.dumps(content).encode()
    return status, [*headers, ("Content-Length", str(len(body)))], body
