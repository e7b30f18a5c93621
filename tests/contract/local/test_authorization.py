"""A function or a job may do what its deployed role allows, and nothing else; a person may do everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from infra.local.authorization import Authorization
from infra.local.server import ApiServer

TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})


@pytest.fixture
def bucket(server: ApiServer) -> str:
    name = f"b-{uuid4().hex[:12]}"
    server.endpoint.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def role(server: ApiServer, bucket: str) -> Iterator[str]:
    """May read below `tables/` of the bucket and get Glue's tables; it is the role of jobs here."""
    name = f"r-{uuid4().hex[:12]}"
    arn: str = server.endpoint.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    allow(server, name, ["s3:GetObject"], f"arn:aws:s3:::{bucket}/tables/*")
    server.authorization = Authorization(server.endpoint, lambda principal: arn)
    yield name
    server.authorization = None


def allow(server: ApiServer, role: str, actions: list[str], resource: str, effect: str = "Allow") -> None:
    statement = {"Effect": effect, "Action": actions, "Resource": resource}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    server.endpoint.client("iam").put_role_policy(RoleName=role, PolicyName=uuid4().hex, PolicyDocument=document)
    if server.authorization:
        server.authorization.forget()


def code_of(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    response: Any = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_an_object_is_read_where_the_role_allows_it_and_nowhere_else(server: ApiServer, bucket: str, role: str) -> None:
    person, job = server.endpoint.client("s3", "person"), server.endpoint.client("s3", "job/any")
    for key in ("tables/a", "other/a"):
        person.put_object(Bucket=bucket, Key=key, Body=b"x")
    assert job.get_object(Bucket=bucket, Key="tables/a")["Body"].read() == b"x"
    for call in (
        lambda: job.get_object(Bucket=bucket, Key="other/a"),
        lambda: job.put_object(Bucket=bucket, Key="tables/a", Body=b"y"),
        lambda: job.delete_object(Bucket=bucket, Key="tables/a"),
        lambda: job.list_objects_v2(Bucket=bucket),
        lambda: job.copy_object(Bucket=bucket, Key="tables/b", CopySource={"Bucket": bucket, "Key": "other/a"}),
    ):
        with pytest.raises(ClientError) as error:
            call()
        assert code_of(error) == ("AccessDenied", 403)
    assert person.get_object(Bucket=bucket, Key="tables/a")["Body"].read() == b"x"


def test_a_copy_needs_to_read_its_source(server: ApiServer, bucket: str, role: str) -> None:
    server.endpoint.client("s3", "person").put_object(Bucket=bucket, Key="other/a", Body=b"x")
    allow(server, role, ["s3:PutObject"], f"arn:aws:s3:::{bucket}/tables/*")
    with pytest.raises(ClientError) as error:
        server.endpoint.client("s3", "job/any").copy_object(
            Bucket=bucket, Key="tables/b", CopySource={"Bucket": bucket, "Key": "other/a"}
        )
    assert code_of(error) == ("AccessDenied", 403)


def test_a_denial_wins_over_what_is_allowed(server: ApiServer, bucket: str, role: str) -> None:
    server.endpoint.client("s3", "person").put_object(Bucket=bucket, Key="tables/a", Body=b"x")
    allow(server, role, ["s3:*"], f"arn:aws:s3:::{bucket}/tables/a", effect="Deny")
    with pytest.raises(ClientError) as error:
        server.endpoint.client("s3", "job/any").get_object(Bucket=bucket, Key="tables/a")
    assert code_of(error) == ("AccessDenied", 403)


def test_glue_needs_the_catalog_the_database_and_the_table(server: ApiServer, role: str) -> None:
    glue, database = server.endpoint.client("glue", "job/any"), f"d{uuid4().hex[:8]}"
    server.endpoint.client("glue", "person").create_database(DatabaseInput={"Name": database})
    arn = f"arn:aws:glue:{server.endpoint.region}:{server.endpoint.account}"
    for resource in ("catalog", f"database/{database}"):
        with pytest.raises(ClientError) as error:
            glue.get_tables(DatabaseName=database)
        assert code_of(error) == ("AccessDeniedException", 400)
        allow(server, role, ["glue:GetTables"], f"{arn}:{resource}")
    assert glue.get_tables(DatabaseName=database)["TableList"] == []


def test_a_service_that_no_rule_is_known_for_is_denied(server: ApiServer, role: str) -> None:
    allow(server, role, ["logs:*"], "arn:aws:logs:*")
    with pytest.raises(ClientError) as error:
        server.endpoint.client("logs", "job/any").describe_log_groups()
    assert "AccessDenied" in code_of(error)[0]


def test_a_function_has_the_role_that_it_is_deployed_with(server: ApiServer, bucket: str, role: str) -> None:
    arn = f"arn:aws:iam::{server.endpoint.account}:role/{role}"
    name = f"f-{uuid4().hex[:8]}"
    server.endpoint.client("lambda").create_function(
        FunctionName=name, Runtime="python3.12", Role=arn, Handler="m.h", Code={"ZipFile": b"PK\x05\x06" + bytes(18)}
    )
    server.authorization = Authorization(server.endpoint, lambda principal: None)
    person, function = server.endpoint.client("s3"), server.endpoint.client("s3", f"function/{name}")
    person.put_object(Bucket=bucket, Key="tables/a", Body=b"x")
    assert function.get_object(Bucket=bucket, Key="tables/a")["Body"].read() == b"x"
    with pytest.raises(ClientError) as error:
        function.put_object(Bucket=bucket, Key="tables/a", Body=b"y")
    assert code_of(error) == ("AccessDenied", 403)
