"""Who may call the deployed API, and what it says of itself."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from joserfc import jwt
from joserfc.jwk import RSAKey

from catalog.access.routes import ROUTES, SIGNED_PREFIX
from infra.local.cloud import EmbeddedCloud
from infra.local.endpoint import REGION
from tests.e2e.api.caller import COLUMNS, ROWS, Api, problem

ADMIN = "strandline:admin"
NO_ROLES: tuple[Any, ...] = (
    ["admin"],
    ["other:admin"],
    [f"not {ADMIN} now"],
    [f"team,{ADMIN},x"],
    ["x", f"y {ADMIN}"],
    [f"{ADMIN}\n"],
    [f" {ADMIN}"],
    ADMIN,
    f"not {ADMIN} now",
    f"strandline:reader:a.b,{ADMIN}",
    f"[{ADMIN}]",
    [[ADMIN]],
    [{"name": ADMIN}],
    ["x", {"a": f"b {ADMIN}"}],
    {"team": f"x {ADMIN}"},
    {ADMIN: True},
    {"app": ["viewer", ADMIN]},
    True,
    7,
)
NO_SCOPES: tuple[Any, ...] = (
    "admin",
    ADMIN,
    "openid,strandline/admin",
    "x\tstrandline/admin",
    "[strandline/admin x]",
    ["x strandline/admin"],
    [["strandline/admin"]],
    {"a": "b strandline/admin x"},
)


class TestWhoMayCall:
    def test_without_a_role_nothing_is_there(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        table = api.make("gold.hidden")
        api.post(f"/tables/{table}/rows", {"rows": ROWS})
        nobody = calling(cloud.token(subject="nobody"))
        assert nobody.get("/tables").json() == {"tables": []}
        assert nobody.get("/snapshots").json() == {"snapshots": []}
        there, not_there = nobody.get(f"/tables/{table}"), nobody.get("/tables/gold.nothing")
        assert problem(there) == problem(not_there) == (404, "not_found")
        assert there.json()["detail"].replace("hidden", "nothing") == not_there.json()["detail"]
        for method, path in [(r.method, r.path) for r in ROUTES if "{t}" in r.path]:
            filled = path.format(t=table, version=0, consumer="c", key="station=a", id="0" * 32)
            body = {"sequence": 0} if method == "PUT" else {"rows": []} if path.endswith("rows") else {"where": "a = 1"}
            if method == "PATCH":
                body = {"drop": ["metres"]}
            if path.endswith("rule"):
                body = {"unknown": "evolve"}
            if path.endswith("erasures"):
                body = {"where": "a = 1", "reason": "asked to"}
            if path.endswith("rows/proof"):
                body = {"keys": {"station": ["a"]}}
            sent = {} if method in ("GET", "DELETE") else {"json": body}
            assert nobody(method, filled, **sent).status_code == 404, path
        commit = api.get_when_ready(f"/tables/{table}/commits").json()["commits"]
        for path in [f"/commits/{one['index']}" for one in commit]:
            assert nobody.get(path).status_code == nobody.get(f"{path}/proof").status_code == 404
        assert nobody.post("/tables", {"name": "gold.new", "columns": COLUMNS}).status_code == 403
        assert nobody.post("/tables", {"name": table, "columns": COLUMNS}).status_code == 403

    def test_a_reader_reads_and_a_writer_writes_their_own(
        self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]
    ) -> None:
        mine, other = api.make("silver.mine"), api.make("silver.other")
        reader, writer = calling(cloud.token(f"reader:{mine}")), calling(cloud.token(f"writer:{mine}"))
        assert reader.get("/tables").json()["tables"] == writer.get("/tables").json()["tables"] == [mine]
        assert problem(reader.post(f"/tables/{mine}/rows", {"rows": ROWS})) == (403, "denied")
        assert writer.post(f"/tables/{mine}/rows", {"rows": ROWS}).status_code == 200
        assert len(reader.rows(mine)) == 2
        assert problem(writer("DELETE", f"/tables/{mine}")) == (403, "denied")
        assert problem(writer.post(f"/tables/{other}/rows", {"rows": ROWS})) == (404, "not_found")

    def test_groups_and_scopes_are_roles_too(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        table = api.make("silver.groups")
        role = f"reader:{table}"
        for claims in ({"cognito:groups": [f"strandline:{role}"]}, {"scope": f"openid strandline/{role}"}):
            assert calling(cloud.token(**claims)).get(f"/tables/{table}").status_code == 200

    def test_only_an_exact_member_of_the_claim_is_a_role(
        self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]
    ) -> None:
        table = api.make("gold.exact")
        claims = [{claim: roles} for claim in ("roles", "cognito:groups") for roles in NO_ROLES]
        claims += [{"scope": scopes} for scopes in NO_SCOPES]
        callers = [
            calling(cloud.token(subject=f"caller-{n}", **one)) for n, one in enumerate(claims)
        ]  # each has limits
        let_in = [
            one for one, api in zip(claims, callers, strict=True) if api.get(f"/tables/{table}").status_code != 404
        ]
        assert let_in == []
        for roles in (["other team", ADMIN], ["x,y", f"strandline:reader:{table}", "map[a:b]"]):
            assert calling(cloud.token(roles=roles)).get(f"/tables/{table}").status_code == 200, roles

    @pytest.mark.parametrize("subject", [None, "", True, 7, {"name": "ada"}, ["ada"]])
    def test_a_token_without_a_subject_is_refused(
        self, cloud: EmbeddedCloud, calling: Callable[..., Api], subject: Any
    ) -> None:
        answer = calling(cloud.token("admin", sub=subject)).get("/tables")
        assert answer.status_code == 401 and "sub" in answer.json()["detail"]

    def test_tokens_that_are_not_the_issuers_are_refused(
        self, cloud: EmbeddedCloud, calling: Callable[..., Api]
    ) -> None:
        issuer, now = cloud.gateway.issuer, int(time.time())
        good = {"iss": issuer.url, "sub": "eve", "aud": cloud.gateway.audience(), "exp": now + 60, "roles": [ADMIN]}
        document = json.loads(issuer.document("/.well-known/jwks.json") or b"")
        public = RSAKey.import_key(document["keys"][0])
        kid = document["keys"][0]["kid"]

        def part(value: Any) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

        def signed(text: str) -> str:
            """As a verifier would check it that takes the public key for a shared secret."""
            made = hmac.digest(public.as_pem(private=False), text.encode(), "sha256")
            return base64.urlsafe_b64encode(made).decode().rstrip("=")

        confused = f"{part({'alg': 'HS256', 'kid': kid})}.{part(good)}"
        valid = issuer.token("eve", cloud.gateway.audience(), roles=[ADMIN])
        head, body, signature = valid.split(".")
        forged = {
            "expired": issuer.token("eve", cloud.gateway.audience(), expires_in=timedelta(seconds=-1)),
            "wrong audience": issuer.token("eve", "another", roles=[ADMIN]),
            "wrong issuer": issuer.token("eve", cloud.gateway.audience(), iss="https://elsewhere"),
            "not yet": issuer.token("eve", cloud.gateway.audience(), nbf=now + 3600),
            "alg none": f"{part({'alg': 'none', 'kid': kid})}.{part(good)}.",
            "key confusion": f"{confused}.{signed(confused)}",
            "another key": jwt.encode({"alg": "RS256", "kid": kid}, good, RSAKey.generate_key(2048), ["RS256"]),
            "altered": f"{head}.{part({**good, 'sub': 'root'})}.{signature}",
            "cut": f"{head}.{body}.",
            "nothing": "-",
        }  # fmt: skip
        assert calling(valid).get("/tables").status_code == 200
        for why, token in forged.items():
            answer = calling(str(token)).get("/tables")
            assert (answer.status_code, answer.json()) == (401, {"message": "Unauthorized"}), why
        assert calling(None).get("/tables").status_code == 401

    def test_no_way_around_the_authorizer(self, api: Api, calling: Callable[..., Api]) -> None:
        api.make("gold.guarded")
        stranger = calling(None)
        for path in (
            "/tables/",
            "//tables",
            "/tables/gold.guarded/",
            "/Tables",
            "/timeline/../tables",
            "/signed/tables",
        ):
            answer = stranger.get(path)
            assert answer.status_code in (401, 403), path  # not one of them runs the function
            assert "gold.guarded" not in answer.text

    def test_a_signed_request_has_the_roles_of_its_principal(self, cloud: EmbeddedCloud, api: Api) -> None:
        table = api.make("gold.signed")

        def get(principal: str) -> httpx.Response:
            url = f"{cloud.addresses()['api']}{SIGNED_PREFIX}/tables/{table}"
            request = AWSRequest("GET", url)
            SigV4Auth(Credentials(principal, "any"), "execute-api", REGION).add_auth(request)
            return httpx.get(url, headers=dict(request.headers))

        assert get("person").json()["name"] == table
        assert get("stranger").status_code == 404


class TestTheSurface:
    def test_what_is_not_there_and_what_may_not_be_done(self, api: Api) -> None:
        assert problem(api.get("/nothing")) == (404, "not_found")
        refused = api("PUT", "/tables", json={})
        assert problem(refused) == (405, "method_not_allowed") and refused.headers["allow"] == "GET, POST"

    def test_the_deployed_routes_are_the_declared_and_the_documented_ones(self, api: Api, cloud: EmbeddedCloud) -> None:
        client = cloud.endpoint.client("apigatewayv2")
        (api_id,) = [one["ApiId"] for one in client.get_apis()["Items"]]
        deployed = {route["RouteKey"]: route for route in client.get_routes(ApiId=api_id)["Items"]}
        declared = {route.key: route for route in ROUTES}
        assert set(deployed) == {*declared, f"ANY {SIGNED_PREFIX}/{{path+}}", "$default"}
        open_keys = {key for key, route in declared.items() if route.is_public(public_entries=False)}
        for key in declared:
            assert deployed[key].get("AuthorizationType", "NONE") == ("NONE" if key in open_keys else "JWT"), key
        assert deployed["$default"]["AuthorizationType"] == "JWT"
        public = {deployed[key]["Target"] for key in open_keys}
        assert len(public) == 1 and not public & {deployed[key]["Target"] for key in declared.keys() - open_keys}
        document = api.get("/openapi.json").json()
        described = {f"{method.upper()} {path}" for path, ways in document["paths"].items() for method in ways}
        assert document["openapi"].startswith("3.1") and described == {key.replace("+}", "}") for key in declared}

    def test_ids_follow_a_request_into_the_logs_and_to_the_sequencer(self, api: Api, cloud: EmbeddedCloud) -> None:
        table = api.make("bronze.watched")
        cloud.wait_until_idle()
        sent = api.post(f"/tables/{table}/rows", {"rows": ROWS}, headers={"X-Correlation-Id": "order-66"})
        assert sent.headers["x-correlation-id"] == "order-66"
        cloud.wait_until_idle()
        for function in ("api", "sequencer"):
            lines = cloud.functions.logs(f"strandline-dev-{function}")
            assert any('"correlation_id":"order-66"' in line for line in lines), function
        bad = api.get("/health", headers={"X-Correlation-Id": "not an id!"})
        assert bad.headers["x-correlation-id"] == bad.headers["x-request-id"]

    def test_figures_and_health(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        assert calling(None).get("/health").json()["status"] == "ok"
        metrics = api.get("/metrics-summary").json()
        assert metrics["tables"] >= 1 and metrics["timeline_size"] >= 0
        assert calling(cloud.token(subject="nobody")).get("/metrics-summary").json()["tables"] == 0
