"""The deployed authorizer is enforced: who is refused, in which words, and what a function is told."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import hashes, hmac
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from infra.local.clock import ManualClock
from infra.local.endpoint import ACCOUNT, REGION
from infra.local.gateway import Gateway
from infra.local.server import ApiServer

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AUDIENCE = "lake"
UNAUTHORIZED = (401, {"message": "Unauthorized"})
FORBIDDEN = (403, {"message": "Forbidden"})


class Answer:
    payload = b'{"statusCode": 200, "body": "in"}'
    function_error = None


class World:
    """A gateway with one API whose routes ask for a token, a scope, a signature, or what nobody can check."""

    def __init__(self, server: ApiServer) -> None:
        self.clock = ManualClock(NOW)
        self.events: list[dict[str, Any]] = []
        self.gateway = Gateway(server.endpoint, server.log, self.invoke, self.clock)
        self.gateway.start()  # its issuer must be there when an authorizer is created
        self.issuer = self.gateway.issuer
        self.client = server.endpoint.client("apigatewayv2")
        self.api = self.client.create_api(Name="lake", ProtocolType="HTTP")["ApiId"]
        self.client.create_stage(ApiId=self.api, StageName="$default", AutoDeploy=True)
        self.authorizer = self.authorize_with(self.issuer.url)
        token = {"AuthorizationType": "JWT", "AuthorizerId": self.authorizer}
        self.route("GET /open")
        self.route("GET /token", **token)
        self.route("GET /scope", **token, AuthorizationScopes=["lake/read", "lake/write"])
        self.route("GET /signed", AuthorizationType="AWS_IAM")
        self.route("GET /custom", AuthorizationType="CUSTOM", AuthorizerId=self.authorizer)

    def authorize_with(self, issuer: str, source: str = "$request.header.Authorization") -> str:
        return str(
            self.client.create_authorizer(
                ApiId=self.api,
                Name="tokens",
                AuthorizerType="JWT",
                IdentitySource=[source],
                JwtConfiguration={"Issuer": issuer, "Audience": [AUDIENCE, "other"]},
            )["AuthorizerId"]
        )

    def route(self, key: str, **route: Any) -> None:
        integration = self.client.create_integration(
            ApiId=self.api,
            IntegrationType="AWS_PROXY",
            IntegrationUri=f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:query",
            PayloadFormatVersion="2.0",
        )["IntegrationId"]
        self.client.create_route(ApiId=self.api, RouteKey=key, Target=f"integrations/{integration}", **route)

    def invoke(self, function_name: str, payload: bytes, /) -> Answer:
        self.events.append(json.loads(payload))
        return Answer()

    def get(self, path: str, token: str | None = None, **headers: str) -> httpx.Response:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return httpx.get(self.gateway.url_of(self.api) + path, headers=headers)

    @property
    def now(self) -> int:
        return int(self.clock.now().timestamp())

    @property
    def authorizer_context(self) -> Any:
        return self.events[-1]["requestContext"]["authorizer"]


@pytest.fixture(scope="module")
def shared_world(server: ApiServer) -> Iterator[World]:
    world = World(server)
    yield world
    world.gateway.stop()
    world.client.delete_api(ApiId=world.api)


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.events.clear()
    return shared_world


def seen(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json()


def test_a_valid_token_is_let_in_and_its_claims_are_told_as_text(world: World) -> None:
    more = {"admin": True, "nested": {"b": [1, "y z"], "a": "x"}, "nothing": None}
    token = world.issuer.token("ada", AUDIENCE, roles=["reader", "not admin now"], scopes=["a", "b"], **more)
    assert world.get("/token", token).text == "in"
    now = world.now
    assert world.authorizer_context == {
        "jwt": {
            "claims": {
                "iss": world.issuer.url,
                "sub": "ada",
                "aud": "lake",
                "iat": str(now),
                "nbf": str(now),
                "exp": str(now + 3600),
                "roles": "[reader not admin now]",
                "scope": "a b",
                "admin": "true",
                "nested": "map[a:x b:[1 y z]]",
            },
            "scopes": None,  # the route asks for none
        }
    }


def test_the_word_bearer_is_optional_and_an_open_route_asks_for_nothing(world: World) -> None:
    token = world.issuer.token("ada", AUDIENCE)
    assert world.get("/token", Authorization=token).status_code == 200
    assert world.get("/token", Authorization=f"bearer {token}").status_code == 200
    assert world.get("/open").status_code == 200


def test_without_a_token_the_caller_is_unauthorized(world: World) -> None:
    answer = world.get("/token")
    assert seen(answer) == UNAUTHORIZED
    assert answer.headers["www-authenticate"] == "Bearer"
    assert world.events == []


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def claims(world: World, **changes: Any) -> dict[str, Any]:
    now = world.now
    usual = {
        "iss": world.issuer.url,
        "sub": "mallory",
        "aud": AUDIENCE,
        "iat": now,
        "nbf": now,
        "exp": now + 60,
    }
    changed = {**usual, **changes}
    return {name: value for name, value in changed.items() if value is not None}


def issued(world: World, **changes: Any) -> str:
    """A token that the issuer really signed, with these claims."""
    return world.issuer.token("mallory", AUDIENCE, **changes)


def kid(world: World) -> str:
    return str(json.loads(world.issuer.document("/.well-known/jwks.json") or b"")["keys"][0]["kid"])


def signed_by_stranger(world: World, **header: Any) -> str:
    key = RSAKey.generate_key(2048)
    return str(jwt.encode({"alg": "RS256", "kid": kid(world), **header}, claims(world), key, ["RS256"]))


def unsigned(world: World, alg: str = "none") -> str:
    return f"{part({'alg': alg, 'kid': kid(world)})}.{part(claims(world))}."


def keyed_with_the_public_key(world: World) -> str:
    """The key confusion attack: HS256 with the issuer's public key, which everybody has, as the secret."""
    public_key = json.loads(world.issuer.document("/.well-known/jwks.json") or b"")["keys"][0]
    text = f"{part({'alg': 'HS256', 'kid': public_key['kid']})}.{part(claims(world))}"
    mac = hmac.HMAC(RSAKey.import_key(public_key).as_pem(private=False), hashes.SHA256())
    mac.update(text.encode())
    return f"{text}.{base64.urlsafe_b64encode(mac.finalize()).rstrip(b'=').decode()}"


def with_its_own_key(world: World) -> str:
    key = RSAKey.generate_key(2048)
    header = {"alg": "RS256", "kid": kid(world), "jwk": key.as_dict(private=False)}
    return str(jwt.encode(header, claims(world), key, ["RS256"]))


def tampered(world: World) -> str:
    head, _, signature = issued(world).split(".")
    return f"{head}.{part(claims(world, sub='root'))}.{signature}"


ATTACKS: dict[str, Callable[[World], str]] = {
    "garbage": lambda world: "garbage",
    "three dots": lambda world: "a.b.c.d",
    "not JSON": lambda world: "YQ.YQ.YQ",
    "no signature, alg none": unsigned,
    "no signature, alg None": lambda world: unsigned(world, "None"),
    "no signature, alg RS256": lambda world: unsigned(world, "RS256"),
    "HS256 with the public key": keyed_with_the_public_key,
    "HS256 with any key": lambda world: str(
        jwt.encode({"alg": "HS256", "kid": kid(world)}, claims(world), OctKey.import_key(b"s" * 32), ["HS256"])
    ),
    "another RSA key under our kid": signed_by_stranger,
    "its own key in the header": with_its_own_key,
    "an unknown kid": lambda world: signed_by_stranger(world, kid="unknown"),
    "no kid": lambda world: f"{part({'alg': 'RS256'})}.{'.'.join(issued(world).split('.')[1:])}",
    "changed claims": tampered,
    "expired": lambda world: issued(world, expires_in=timedelta(seconds=-1)),
    "expires this second": lambda world: issued(world, expires_in=timedelta(0)),
    "no expiry": lambda world: issued(world, exp=None),
    "an expiry that is text": lambda world: issued(world, exp="2099"),
    "not valid yet": lambda world: issued(world, nbf=world.now + 1),
    "issued in the future": lambda world: issued(world, iat=world.now + 1),
    "for another audience": lambda world: issued(world, aud="shop"),
    "for other audiences": lambda world: issued(world, aud=["shop", "bank"]),
    "for nobody": lambda world: issued(world, aud=[]),
    "audience wrong, client right": lambda world: issued(world, aud="shop", client_id=AUDIENCE),
    "by another issuer": lambda world: issued(world, iss="https://evil.example"),
    "by a longer issuer": lambda world: issued(world, iss=f"{world.issuer.url}/evil"),
    "by nobody": lambda world: issued(world, iss=None),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=list(ATTACKS))
def test_an_invalid_token_is_refused_and_the_function_never_runs(world: World, attack: Callable[[World], str]) -> None:
    answer = world.get("/token", attack(world))
    assert seen(answer) == UNAUTHORIZED
    assert answer.headers["www-authenticate"].startswith('Bearer scope="" error="invalid_token"')
    assert world.events == []


@pytest.mark.parametrize(
    "changes",
    [{"aud": ["shop", AUDIENCE]}, {"aud": "other"}, {"nbf": int(NOW.timestamp())}],
    ids=["one of its audiences", "one of ours", "valid from now"],
)
def test_the_attacks_differ_from_a_good_token_in_one_thing_only(world: World, changes: dict[str, Any]) -> None:
    assert world.get("/token", issued(world, **changes)).status_code == 200


def test_a_token_without_an_audience_is_for_its_client(world: World) -> None:
    key = world.issuer._current()[0]
    header = {"alg": "RS256", "kid": key.kid}
    token = jwt.encode(header, claims(world, aud=None, client_id=AUDIENCE), key, ["RS256"])
    assert world.get("/token", str(token)).status_code == 200


def test_a_token_expires_by_the_clock_of_the_cloud(world: World) -> None:
    token = world.issuer.token("ada", AUDIENCE, expires_in=timedelta(minutes=5))
    world.clock.advance(timedelta(minutes=4, seconds=59))
    assert world.get("/token", token).status_code == 200
    world.clock.advance(timedelta(seconds=1))
    answer = world.get("/token", token)
    assert seen(answer) == UNAUTHORIZED
    assert 'error_description="the token has expired"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize(
    ("claim", "status"),
    [
        ({"scopes": ["lake/read"]}, 200),
        ({"scopes": ["x", "lake/write"]}, 200),
        ({"scp": ["lake/read"]}, 200),
        ({"scopes": ["lake/rea"]}, 403),
        ({"scopes": ["lake/read/all"]}, 403),
        ({}, 403),
    ],
)
def test_a_route_with_scopes_asks_for_one_of_them(world: World, claim: dict[str, Any], status: int) -> None:
    answer = world.get("/scope", world.issuer.token("ada", AUDIENCE, **claim))
    assert answer.status_code == status
    if status == 403:
        assert seen(answer) == FORBIDDEN
        assert 'scope="lake/read lake/write" error="insufficient_scope"' in answer.headers["www-authenticate"]
    else:
        assert "lake/" in " ".join(world.authorizer_context["jwt"]["scopes"])


def test_a_new_key_is_fetched_and_the_old_ones_tokens_stay_good(world: World) -> None:
    before = world.issuer.token("ada", AUDIENCE)
    assert world.get("/token", before).status_code == 200
    world.issuer.rotate()
    assert world.get("/token", world.issuer.token("ada", AUDIENCE)).status_code == 200
    assert world.get("/token", before).status_code == 200


def test_the_issuer_shows_public_keys_only(world: World) -> None:
    configuration = httpx.get(f"{world.issuer.url}/.well-known/openid-configuration").json()
    assert configuration["issuer"] == world.issuer.url
    keys = httpx.get(configuration["jwks_uri"]).json()["keys"]
    assert keys
    assert all(key.keys() == {"kty", "n", "e", "kid", "use", "alg"} for key in keys)
    assert httpx.get(f"{world.issuer.url}/private").status_code == 404


def test_an_issuer_that_cannot_be_reached_any_more_lets_nobody_in(world: World, server: ApiServer) -> None:
    other = Gateway(server.endpoint, server.log, world.invoke)
    other.start()
    gone = world.authorize_with(other.issuer.url)
    other.stop()
    world.route("GET /gone", AuthorizationType="JWT", AuthorizerId=gone)
    answer = world.get("/gone", issued(world, iss=other.issuer.url))
    assert seen(answer) == UNAUTHORIZED
    assert "OIDC discovery endpoint communication error" in answer.headers["www-authenticate"]


def test_the_token_is_taken_from_where_the_authorizer_says(world: World) -> None:
    query = world.authorize_with(world.issuer.url, source="$request.querystring.token")
    world.route("GET /query", AuthorizationType="JWT", AuthorizerId=query)
    token = world.issuer.token("ada", AUDIENCE)
    assert world.get(f"/query?token={token}").status_code == 200
    assert seen(world.get("/query", token)) == UNAUTHORIZED


def signature(world: World, service: str = "execute-api") -> dict[str, str]:
    request = AWSRequest("GET", world.gateway.url_of(world.api) + "/signed")
    SigV4Auth(Credentials("function.query", "embedded"), service, REGION).add_auth(request)
    return dict(request.headers)


def test_a_signed_request_is_let_in_as_its_access_key(world: World) -> None:
    assert world.get("/signed", **signature(world)).text == "in"
    assert world.authorizer_context["iam"]["accessKey"] == "function.query"
    assert world.authorizer_context["iam"]["accountId"] == ACCOUNT


def test_what_is_not_signed_for_execute_api_is_forbidden(world: World) -> None:
    for_s3 = signature(world, "s3")
    undated = {name: value for name, value in signature(world).items() if name != "X-Amz-Date"}
    cut = {**signature(world)}
    cut["Authorization"] = cut["Authorization"].partition(", Signature=")[0]
    for headers in ({}, {"Authorization": "Bearer x"}, for_s3, undated, cut):
        assert seen(world.get("/signed", **headers)) == FORBIDDEN
    assert world.events == []


def test_an_authorization_that_cannot_be_enforced_lets_nobody_in(world: World) -> None:
    assert world.get("/custom", issued(world)).status_code == 500
    assert world.events == []


@pytest.mark.parametrize("issuer", ["http://127.0.0.1:9", "https://issuer.invalid"])
def test_an_authorizer_is_not_created_for_an_issuer_that_is_not_there(world: World, issuer: str) -> None:
    with pytest.raises(world.client.exceptions.BadRequestException, match="Issuer is invalid"):
        world.authorize_with(issuer)
    with pytest.raises(world.client.exceptions.BadRequestException, match="Issuer is invalid"):
        world.authorize_with(f"{world.issuer.address}/another")


def test_a_user_pool_is_an_issuer_once_it_exists(world: World, server: ApiServer) -> None:
    absent = f"https://cognito-idp.{REGION}.amazonaws.com/{REGION}_absent"
    with pytest.raises(world.client.exceptions.BadRequestException):
        world.authorize_with(absent)
    pool = server.endpoint.client("cognito-idp").create_user_pool(PoolName="people")["UserPool"]["Id"]
    world.authorize_with(f"https://cognito-idp.{REGION}.amazonaws.com/{pool}")
