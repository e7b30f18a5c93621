"""The gateway's server: routes requests of the deployed HTTP APIs to their functions.

Listens on loopback only. Serves an API's current routes: a stage's deployments are not kept apart.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from werkzeug.wrappers import Request, Response

from infra.local.awslambda.invocation import Invocation, Invoke, function_name_of, is_throttled
from infra.local.clock import Clock, SystemClock
from infra.local.endpoint import Endpoint
from infra.local.gateway import cors
from infra.local.gateway.apis import Api, DeployedApis, Integration
from infra.local.gateway.authorizer import Authorizer, DeniedError
from infra.local.gateway.discovery import POOL
from infra.local.gateway.event import build_event
from infra.local.gateway.issuer import Issuer
from infra.local.gateway.page import Session, page_response
from infra.local.gateway.responses import (
    LAMBDA_LIMIT,
    REQUEST_LIMIT,
    MalformedResponseError,
    error_response,
    parse_response,
)
from infra.local.gateway.routing import API_PREFIX, choose_api, choose_route, choose_stage
from infra.local.gateway.throttle import Throttle
from infra.local.listener import Listener
from infra.local.requests import RequestLog

ISSUER_PREFIX = "/_issuer"

_log = logging.getLogger(__name__)


class Gateway:
    """Serves every deployed HTTP API on one loopback port, and the issuer of their tokens below `/_issuer`.

    The port is bound on creation, so that stacks that name an issuer can be deployed with `issuer.address`.
    """

    def __init__(
        self, endpoint: Endpoint, log: RequestLog, invoke: Invoke, clock: Clock | None = None, port: int = 0
    ) -> None:
        self._clock = clock or SystemClock()
        self._apis = DeployedApis(endpoint, log)
        self._invoke = invoke
        self._throttle = Throttle()
        self._listener = Listener(self._application, port, "api-gateway")
        self.url = f"http://127.0.0.1:{self._listener.port}"
        self.issuer = Issuer(f"{self.url}{ISSUER_PREFIX}", self._clock)
        self._authorizer = Authorizer(self._clock, self.issuer.locate)
        self.page_session: Session | None = None
        """Returns the session of the page at the root; None serves no page."""

    def start(self) -> None:
        self._listener.start()

    def stop(self) -> None:
        self._listener.stop()

    def sync(self) -> None:
        """Needed only after moto's state was changed without its API; changes through the API are noticed."""
        self._apis.forget()

    def url_of(self, api_id: str) -> str:
        """The URL of this API on loopback, in place of its ApiEndpoint."""
        return f"{self.url}{API_PREFIX}{api_id}"

    def audience(self) -> str:
        """The audience that the first deployed JWT authorizer requires. Raises LookupError without one."""
        for configuration in self._jwt_configurations():
            if audience := configuration.get("Audience"):
                return str(audience[0])
        raise LookupError("no deployed API has a JWT authorizer with an audience")

    def stand_for_pool(self) -> None:
        """Makes the issuer sign as the user pool that the first deployed JWT authorizer trusts, if that is a pool."""
        issuers = (str(configuration["Issuer"]) for configuration in self._jwt_configurations())
        if pool := next((issuer for issuer in issuers if POOL.fullmatch(issuer)), None):
            self.issuer.url = pool

    def _jwt_configurations(self) -> Iterator[dict[str, Any]]:
        for api in self._apis.current().values():
            for route in api.routes:
                if route.authorizer:
                    yield route.authorizer["JwtConfiguration"]

    def _application(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ)
        path = environ["RAW_URI"].partition("?")[0]
        try:
            response = self._serve(request, path)
        except Exception:
            _log.exception("the gateway failed on %s %s", request.method, path)
            response = error_response(500)
        return response(environ, start_response)

    def _serve(self, request: Request, path: str) -> Response:
        if path.startswith(f"{ISSUER_PREFIX}/"):
            document = self.issuer.document(path.removeprefix(ISSUER_PREFIX))
            return Response(document, 200, mimetype="application/json") if document else error_response(404)
        page = page_response(request, path, self.page_session)
        if page is not None:
            return page
        apis = self._apis.current()
        api, path = choose_api(apis, request.host, path)
        if api is None:
            _log.info("%s %s matches no API of %s", request.method, path, ", ".join(apis) or "(none deployed)")
            return error_response(404)
        if api.cors and cors.is_preflight(request):
            return cors.preflight(request, api.cors)
        return cors.apply(request, self._call(request, api, path), api.cors)

    def _call(self, request: Request, api: Api, path: str) -> Response:
        stage, stage_path = choose_stage(api, path)
        match = choose_route(api, request.method, stage_path) if stage else None
        if stage is None or match is None:
            return error_response(404)
        if len(request.get_data()) > REQUEST_LIMIT:
            return error_response(413)
        try:
            identity = self._authorizer.authorize(request, match.route)
        except DeniedError as denied:
            _log.info("%s %s denied with %d: %s", request.method, path, denied.status, denied.reason)
            return error_response(denied.status, **({"WWW_Authenticate": denied.challenge} if denied.challenge else {}))
        if not self._throttle.admits(api.id, stage, match.route.key):
            return error_response(429)
        event = build_event(request, api, stage, match, path, identity, self._clock.now())
        response = self._run(match.route.integration, event)
        response.headers["Apigw-Requestid"] = event["requestContext"]["requestId"]
        return response

    def _run(self, integration: Integration | None, event: dict[str, Any]) -> Response:
        if integration is None or integration.kind != "AWS_PROXY" or integration.payload_format != "2.0":
            _log.error("%s: supports only Lambda with payload format 2.0, not %s", event["routeKey"], integration)
            return error_response(500)
        payload = json.dumps(event).encode()
        if len(payload) > LAMBDA_LIMIT:
            return error_response(413)
        name = function_name_of(integration.uri)
        call = _in_background(self._invoke, name, payload)
        try:
            invocation = call.result(integration.timeout_seconds)
            if invocation.function_error:
                _log.warning("%s raised: %s", name, invocation.payload.decode()[:2000])
                return error_response(500)
            return parse_response(invocation.payload)
        except TimeoutError:
            return error_response(504)  # the function continues, as on AWS
        except MalformedResponseError as error:
            _log.warning("%s returned a malformed response: %s", name, error)
            return error_response(500)
        except Exception as error:
            if is_throttled(error):
                return error_response(503)
            raise


def _in_background(invoke: Invoke, name: str, payload: bytes) -> Future[Invocation]:
    """Invokes on a new thread: in a pool, one slow function would delay the others."""
    call: Future[Invocation] = Future()

    def run() -> None:
        try:
            call.set_result(invoke(name, payload))
        except BaseException as error:
            call.set_exception(error)

    threading.Thread(target=run, name=f"call-{name}", daemon=True).start()
    return call
