"""CloudFormation in the embedded cloud: what a template says exists, and what nobody knows is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.local.assembly import Template, deploy, resources
from infra.local.quotas import RAISED, account_with
from infra.local.server import ApiServer


def stack(server: ApiServer, name: str, **logical: dict[str, Any]) -> None:
    deploy(server.endpoint, [Template(name, {"Resources": logical})])


def test_an_unknown_type_is_refused_by_name(server: ApiServer) -> None:
    with pytest.raises(ClientError, match="AWS::Quantum::Entangler"):
        stack(server, "strange", Thing={"Type": "AWS::Quantum::Entangler"})


def test_an_opaque_type_is_taken(server: ApiServer) -> None:
    stack(server, "opaque", Meta={"Type": "AWS::CDK::Metadata", "Properties": {}})
    assert resources(server.endpoint, "AWS::CDK::Metadata")


def test_a_failing_creation_fails_the_stack_with_the_reason(server: ApiServer) -> None:
    broken = {"Type": "AWS::Scheduler::Schedule", "Properties": {"ScheduleExpression": "rate(1 minute)"}}
    with pytest.raises(ClientError, match=r"(?s)AWS::Scheduler::Schedule could not be created.*FlexibleTimeWindow"):
        stack(server, "broken", Schedule=broken)


def test_a_bucket_is_what_its_template_says(server: ApiServer) -> None:
    sqs, s3 = server.endpoint.client("sqs"), server.endpoint.client("s3")
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "landed"}}
    rules = [{"Name": "prefix", "Value": "landing/"}]
    bucket = {
        "Type": "AWS::S3::Bucket",
        "Properties": {
            "VersioningConfiguration": {"Status": "Enabled"},
            "PublicAccessBlockConfiguration": {"BlockPublicAcls": True},
            "NotificationConfiguration": {
                "QueueConfigurations": [
                    {
                        "Event": "s3:ObjectCreated:*",
                        "Queue": {"Fn::GetAtt": ["Queue", "Arn"]},
                        "Filter": {"S3Key": {"Rules": rules}},
                    }
                ]
            },
        },
    }
    stack(server, "bucket", Queue=queue, Bucket=bucket)
    name = resources(server.endpoint, "AWS::S3::Bucket")["Bucket"]
    assert s3.get_bucket_versioning(Bucket=name)["Status"] == "Enabled"
    assert s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]["BlockPublicAcls"]
    s3.put_object(Bucket=name, Key="elsewhere/a", Body=b"")
    s3.put_object(Bucket=name, Key="landing/b", Body=b"")
    url = sqs.get_queue_url(QueueName="landed")["QueueUrl"]
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    records = [record for m in messages for record in json.loads(m["Body"]).get("Records", [])]
    assert [record["s3"]["object"]["key"] for record in records] == ["landing/b"]


def test_a_deleted_stack_is_described_and_not_made_again(server: ApiServer) -> None:
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "passing"}}
    output = {"Value": {"Fn::GetAtt": ["Queue", "Arn"]}, "Export": {"Name": "passing-arn"}}
    deploy(server.endpoint, [Template("passing", {"Resources": {"Queue": queue}, "Outputs": {"Arn": output}})])
    cloudformation, sqs = server.endpoint.client("cloudformation"), server.endpoint.client("sqs")
    id_ = cloudformation.describe_stacks(StackName="passing")["Stacks"][0]["StackId"]
    assert sqs.list_queues(QueueNamePrefix="passing")["QueueUrls"]
    cloudformation.delete_stack(StackName="passing")
    assert cloudformation.describe_stacks(StackName=id_)["Stacks"][0]["StackStatus"] == "DELETE_COMPLETE"
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="passing")


def test_an_api_may_have_a_name_of_its_own(server: ApiServer) -> None:
    api = {"Type": "AWS::ApiGatewayV2::Api", "Properties": {"Name": "named", "ProtocolType": "HTTP"}}
    stage = {
        "Type": "AWS::ApiGatewayV2::Stage",
        "Properties": {"ApiId": {"Ref": "Api"}, "StageName": "$default", "AutoDeploy": True},
    }
    arn = "arn:aws:acm:us-east-1:123456789012:certificate/0a"
    domain = {
        "Type": "AWS::ApiGatewayV2::DomainName",
        "Properties": {"DomainName": "lake.example.org", "DomainNameConfigurations": [{"CertificateArn": arn}]},
    }
    mapping = {
        "Type": "AWS::ApiGatewayV2::ApiMapping",
        "Properties": {"ApiId": {"Ref": "Api"}, "DomainName": {"Ref": "Domain"}, "Stage": {"Ref": "Stage"}},
    }
    stack(server, "named", Api=api, Stage=stage, Domain=domain, Mapping=mapping)
    client = server.endpoint.client("apigatewayv2")
    (mapped,) = client.get_api_mappings(DomainName="lake.example.org")["Items"]
    assert mapped["ApiId"] == resources(server.endpoint, "AWS::ApiGatewayV2::Api")["Api"]
    server.endpoint.client("cloudformation").delete_stack(StackName="named")
    assert client.get_domain_names()["Items"] == []


def test_an_image_function_keeps_its_command_and_concurrency(server: ApiServer) -> None:
    role = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {"Statement": []}}}
    function = {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "FunctionName": "image",
            "PackageType": "Image",
            "Code": {"ImageUri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/x:latest"},
            "ImageConfig": {"Command": ["functions.sequencer.handler"]},
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
            "ReservedConcurrentExecutions": 1,
            "Timeout": 42,
        },
    }
    client = server.endpoint.client("lambda")
    with account_with(RAISED):
        stack(server, "function", Role=role, Function=function)
    deployed = client.get_function(FunctionName="image")
    assert deployed["Configuration"]["ImageConfigResponse"]["ImageConfig"]["Command"] == ["functions.sequencer.handler"]
    assert deployed["Configuration"]["Timeout"] == 42
    assert deployed["Concurrency"]["ReservedConcurrentExecutions"] == 1

    function["Properties"]["Timeout"] = 43
    with account_with(RAISED):
        stack(server, "function", Role=role, Function=function)
    assert client.get_function(FunctionName="image")["Configuration"]["Timeout"] == 43

    server.endpoint.client("cloudformation").delete_stack(StackName="function")
    with pytest.raises(ClientError, match="ResourceNotFound"):
        client.get_function(FunctionName="image")


def test_a_generated_secret_has_the_length_asked_for(server: ApiServer) -> None:
    properties = {"Name": "seed", "GenerateSecretString": {"PasswordLength": 64, "ExcludePunctuation": True}}
    stack(server, "secret", Secret={"Type": "AWS::SecretsManager::Secret", "Properties": properties})
    arn = resources(server.endpoint, "AWS::SecretsManager::Secret")["Secret"]
    text = server.endpoint.client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"]
    assert len(text) == 64
    assert text.isalnum()


@pytest.mark.parametrize(
    ("type_", "properties", "unknown"),
    [
        ("AWS::SQS::Queue", {"QueueName": "q", "Fifo": True}, "has no property Fifo"),
        (
            "AWS::S3::Bucket",
            {"LifecycleConfiguration": {"Rules": [{"Status": "Enabled", "Expire": 1}]}},
            "has no property LifecycleConfiguration.Rules.Expire",
        ),
        (
            "AWS::EMRServerless::Application",
            {"Type": "SPARK", "MaximumCapacity": {"Vcpu": "4"}},
            "MaximumCapacity.Vcpu",
        ),
    ],
)
def test_a_property_that_the_type_does_not_have_is_refused(
    server: ApiServer, type_: str, properties: dict[str, Any], unknown: str
) -> None:
    """moto ignores it, and the lake would run here with less than its template says."""
    with pytest.raises(ClientError, match=unknown):
        stack(server, "strict", Resource={"Type": type_, "Properties": properties})
