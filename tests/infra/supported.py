"""The part of the stacks that LocalStack can stand on, and its deployment there.

Each type of the templates is in one of two lists below. One that is in neither fails a test, so that a resource which
a stack gains is either deployed there or left out with a reason; docs/emulators.md says the same in prose.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from infra.local.assembly import BOOTSTRAP_VERSION, Template
from infra.local.formation.bucket import configure_bucket
from tests.waiting import wait_until

KEPT = frozenset(
    {
        "AWS::CloudWatch::Alarm",
        "AWS::Events::EventBus",
        "AWS::Events::Rule",
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::KMS::Alias",
        "AWS::KMS::Key",
        "AWS::Logs::LogGroup",
        "AWS::S3::Bucket",
        "AWS::S3::BucketPolicy",
        "AWS::SNS::Topic",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::Queue",
        "AWS::SQS::QueuePolicy",
        "AWS::Scheduler::Schedule",
        "AWS::SecretsManager::Secret",
    }
)
_NOT_THERE = "LocalStack without a token has no such service"
_IMAGES = "it runs functions in Docker only, and of images none without a token"
LEFT_OUT = {
    "AWS::ApiGatewayV2::Api": _NOT_THERE,
    "AWS::ApiGatewayV2::Authorizer": _NOT_THERE,
    "AWS::ApiGatewayV2::Integration": _NOT_THERE,
    "AWS::ApiGatewayV2::Route": _NOT_THERE,
    "AWS::ApiGatewayV2::Stage": _NOT_THERE,
    "AWS::Budgets::Budget": _NOT_THERE,
    "AWS::CloudFront::CachePolicy": _NOT_THERE,
    "AWS::CloudFront::Distribution": _NOT_THERE,
    "AWS::CloudFront::OriginAccessControl": _NOT_THERE,
    "AWS::CloudWatch::Dashboard": "its CloudFormation does not know the type",
    "AWS::Cognito::UserPool": _NOT_THERE,
    "AWS::Cognito::UserPoolClient": _NOT_THERE,
    "AWS::Cognito::UserPoolGroup": _NOT_THERE,
    "AWS::DynamoDB::Table": "its DynamoDB is a Java program that it downloads",
    "AWS::EMRServerless::Application": _NOT_THERE,
    "AWS::Glue::Database": _NOT_THERE,
    "AWS::LakeFormation::Resource": _NOT_THERE,
    "AWS::Lambda::EventSourceMapping": _IMAGES,
    "AWS::Lambda::Function": _IMAGES,
    "AWS::Lambda::Permission": _IMAGES,
}
DEPLOY_S = 300


def supported_part(templates: Iterable[Template]) -> Iterator[Template]:
    """The stacks in their order, without what is left out; a reference to that becomes a name that says so.

    Everything else is as it was synthesised.
    """
    exports: set[str] = set()
    for template in templates:
        resources = template.body["Resources"]
        gone = {name for name, one in resources.items() if one["Type"] in LEFT_OUT}
        kept = {name: _without(one, gone, exports) for name, one in resources.items() if name not in gone}
        for one in kept.values():
            if "DependsOn" in one:
                one["DependsOn"] = [name for name in one["DependsOn"] if name not in gone]
        outputs = {
            name: one for name, one in template.body.get("Outputs", {}).items() if not _names(one["Value"]) & gone
        }
        exports |= {one["Export"]["Name"] for one in outputs.values() if "Export" in one}
        yield Template(template.stack, {**template.body, "Resources": kept, "Outputs": outputs})


def deploy(client: Any, templates: Iterable[Template]) -> None:
    """Creates the stacks through CloudFormation, which works in the background there, as on AWS."""
    name, version = BOOTSTRAP_VERSION
    client("ssm").put_parameter(Name=name, Value=version, Type="String")
    cloudformation = client("cloudformation")
    for template in templates:
        stack, body = template.stack, json.dumps(template.body)
        cloudformation.create_stack(StackName=stack, TemplateBody=body, Capabilities=["CAPABILITY_NAMED_IAM"])
        if (status := _settled(cloudformation, stack)) != "CREATE_COMPLETE":
            events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
            reasons = [
                f"{one['LogicalResourceId']}: {one.get('ResourceStatusReason')}"
                for one in events
                if one["ResourceStatus"].endswith("FAILED")
            ]
            raise RuntimeError(f"stack {stack} ended as {status}:\n" + "\n".join(reasons))


def delete(client: Any, stacks: Sequence[str]) -> None:
    """Deletes the stacks, the last created first: others hold on to what they export."""
    cloudformation = client("cloudformation")
    for stack in reversed(stacks):
        id_ = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackId"]  # a deleted one has no name
        cloudformation.delete_stack(StackName=stack)
        if (status := _settled(cloudformation, id_)) != "DELETE_COMPLETE":
            raise RuntimeError(f"stack {stack} ended as {status}")


def _settled(cloudformation: Any, stack: str) -> str:
    def final_status() -> str | None:
        status = str(cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"])
        return None if status.endswith("_IN_PROGRESS") else status

    return str(wait_until(final_status, f"stack {stack} to leave *_IN_PROGRESS", DEPLOY_S))


def _without(value: Any, gone: set[str], exports: set[str]) -> Any:
    match value:
        case {"Ref": str(name)} if name in gone:
            return _stand_in(name)
        case {"Fn::GetAtt": [str(name), str(attribute)]} if name in gone:
            return _stand_in(name, attribute)
        case {"Fn::ImportValue": str(name)} if name not in exports:
            return _stand_in(name, name)
        case dict():
            return {key: _without(one, gone, exports) for key, one in value.items()}
        case list():
            return [_without(one, gone, exports) for one in value]
        case _:
            return value


def _stand_in(name: str, attribute: str = "") -> str:
    """IAM takes nothing for a resource that is no ARN."""
    return f"arn:aws:left-out:::{name}" if "Arn" in attribute else f"left-out-{name}"


def _names(value: Any) -> set[str]:
    """The logical ids that a value refers to."""
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), str()]}:
            return {name}
        case dict():
            return set().union(*map(_names, value.values()))
        case list():
            return set().union(*map(_names, value))
        case _:
            return set()


def finish_bucket(client: Any, bucket: str, properties: dict[str, Any], key_arn: str) -> None:
    """What LocalStack's CloudFormation drops of a bucket, said to its S3 instead: encryption and lifecycle."""
    rules = properties["LifecycleConfiguration"]["Rules"]
    dropped = {
        "BucketEncryption": _with_key(properties["BucketEncryption"], key_arn),
        # CloudFormation gives each rule an id; LocalStack's S3 asks for one.
        "LifecycleConfiguration": {"Rules": [{"Id": f"rule-{number}", **rule} for number, rule in enumerate(rules)]},
    }
    configure_bucket(client("s3"), bucket, dropped)


def _with_key(value: Any, arn: str) -> Any:
    match value:
        case {"Fn::GetAtt": [str(name), "Arn"]} if name.startswith("Key"):
            return arn
        case dict():
            return {key: _with_key(one, arn) for key, one in value.items()}
        case list():
            return [_with_key(one, arn) for one in value]
        case _:
            return value
