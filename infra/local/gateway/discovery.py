"""API Gateway's check of an issuer when a JWT authorizer is created: its discovery document must be there.

docs.aws.amazon.com/apigateway/latest/developerguide/http-api-jwt-authorizer.html. moto accepts any issuer.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import urllib3
from moto.apigatewayv2.exceptions import BadRequestException
from moto.apigatewayv2.models import ApiGatewayV2Backend
from moto.cognitoidp.models import cognitoidp_backends

POOL = re.compile(r"https://cognito-idp\.([a-z0-9-]+)\.amazonaws\.com/([\w-]+)")
"""The issuer of a Cognito user pool."""

_http = urllib3.PoolManager(timeout=5.0, retries=False)


@functools.cache
def patch_authorizers() -> None:
    create, update = ApiGatewayV2Backend.create_authorizer, ApiGatewayV2Backend.update_authorizer

    def create_authorizer(self: ApiGatewayV2Backend, *arguments: Any, **parameters: Any) -> Any:
        _check(self.account_id, parameters.get("jwt_config"))
        return create(self, *arguments, **parameters)

    def update_authorizer(self: ApiGatewayV2Backend, *arguments: Any, **parameters: Any) -> Any:
        _check(self.account_id, parameters.get("jwt_config"))
        return update(self, *arguments, **parameters)

    ApiGatewayV2Backend.create_authorizer = create_authorizer
    ApiGatewayV2Backend.update_authorizer = update_authorizer


def _check(account: str, configuration: Any) -> None:
    issuer = (configuration or {}).get("issuer") or (configuration or {}).get("Issuer")
    if issuer is None:
        return
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    if pool := POOL.fullmatch(issuer):
        found = pool[2] in cognitoidp_backends[account][pool[1]].user_pools
    else:
        found = _names_itself(url, issuer)
    if not found:
        raise BadRequestException(
            f"Caught exception when connecting to {url} for issuer {issuer}. Please try again later. Error: Issuer is "
            "invalid"
        )


def _names_itself(url: str, issuer: str) -> bool:
    try:
        response = _http.request("GET", url)
        return response.status == 200 and bool(json.loads(response.data)["issuer"] == issuer)
    except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError):
        return False
