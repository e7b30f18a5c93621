"""AWS::S3::Bucket with everything our stacks say of one: moto's own model knows the name, encryption and tags only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def create_bucket(client: Any, properties: dict[str, Any]) -> Mapping[str, Any]:
    bucket = properties["BucketName"].lower()
    client.create_bucket(Bucket=bucket)
    configure_bucket(client, bucket, properties)
    return {
        "BucketName": bucket,
        "Bucket": bucket,
        "Arn": f"arn:aws:s3:::{bucket}",
        "DomainName": f"{bucket}.s3.amazonaws.com",
    }


def update_bucket(client: Any, made: dict[str, Any], properties: dict[str, Any]) -> None:
    configure_bucket(client, made["Bucket"], properties)


def configure_bucket(client: Any, bucket: str, properties: dict[str, Any]) -> None:
    """All but access logs and replication: moto would write a log object within each request, and knows one region."""
    versioning = properties.get("VersioningConfiguration")
    if versioning:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=versioning)
    encryption = properties.get("BucketEncryption")
    if encryption:
        rules = [
            {"ApplyServerSideEncryptionByDefault": rule["ServerSideEncryptionByDefault"]}
            for rule in encryption["ServerSideEncryptionConfiguration"]
        ]
        client.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": rules})
    block = properties.get("PublicAccessBlockConfiguration")
    if block:
        flags = {key: value in (True, "true") for key, value in block.items()}
        client.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=flags)
    tags = properties.get("Tags")
    if tags:
        client.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    lifecycle = properties.get("LifecycleConfiguration")
    if lifecycle:
        rules = [_lifecycle_rule(rule) for rule in lifecycle["Rules"]]
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    notification = properties.get("NotificationConfiguration")
    if notification:
        client.put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration=_notification(notification)
        )


def _lifecycle_rule(rule: dict[str, Any]) -> dict[str, Any]:
    """CloudFormation's `ExpirationInDays` and the like in the API's words. What is not said here is refused."""
    out: dict[str, Any] = {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    for name, value in rule.items():
        match name:
            case "Status" | "Prefix":
                pass
            case "Id":
                out["ID"] = value
            case "ExpirationInDays":
                out["Expiration"] = {"Days": int(value)}
            case "NoncurrentVersionExpiration":
                out[name] = {"NoncurrentDays": int(value["NoncurrentDays"])}
            case "AbortIncompleteMultipartUpload":
                out[name] = {"DaysAfterInitiation": int(value["DaysAfterInitiation"])}
            case "Transitions":
                out[name] = [
                    {"Days": int(one["TransitionInDays"]), "StorageClass": one["StorageClass"]} for one in value
                ]
            case _:
                raise ValueError(f"infra/local/formation/bucket.py does not know {name} of a lifecycle rule")
    return out


def _notification(properties: dict[str, Any]) -> dict[str, Any]:
    """CloudFormation's singular `Event` and `Filter.S3Key` in the API's words."""
    kinds = {
        "QueueConfigurations": ("Queue", "QueueArn"),
        "LambdaConfigurations": ("Function", "LambdaFunctionArn"),
        "TopicConfigurations": ("Topic", "TopicArn"),
    }
    out: dict[str, Any] = {}
    for kind, (short, long) in kinds.items():
        entries = [_entry(entry, short, long) for entry in properties.get(kind, [])]
        if entries:
            out["LambdaFunctionConfigurations" if short == "Function" else kind] = entries
    if "EventBridgeConfiguration" in properties:
        out["EventBridgeConfiguration"] = {}
    return out


def _entry(entry: dict[str, Any], short: str, long: str) -> dict[str, Any]:
    out: dict[str, Any] = {long: entry[short], "Events": [entry["Event"]]}
    if "Filter" in entry:
        rules = entry["Filter"]["S3Key"]["Rules"]
        out["Filter"] = {"Key": {"FilterRules": rules}}
    return out
