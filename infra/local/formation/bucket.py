"""AWS::S3::Bucket with the properties that the stacks use: moto's own model has name, encryption and tags only."""

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


def update_bucket(client: Any, state: dict[str, Any], properties: dict[str, Any]) -> None:
    configure_bucket(client, state["Bucket"], properties)


def configure_bucket(client: Any, bucket: str, properties: dict[str, Any]) -> None:
    """Sets all properties except access logs, for which moto would write a log object within each request, and
    replication, since the embedded cloud has one region."""
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
    """A rule's CloudFormation properties as the API's parameters. Raises ValueError for a property not listed here."""
    parameters: dict[str, Any] = {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    for name, value in rule.items():
        match name:
            case "Status" | "Prefix":
                pass
            case "Id":
                parameters["ID"] = value
            case "ExpirationInDays":
                parameters["Expiration"] = {"Days": int(value)}
            case "ExpiredObjectDeleteMarker":
                parameters["Expiration"] = {"ExpiredObjectDeleteMarker": value in (True, "true")}
            case "NoncurrentVersionExpiration":
                parameters[name] = {"NoncurrentDays": int(value["NoncurrentDays"])}
            case "AbortIncompleteMultipartUpload":
                parameters[name] = {"DaysAfterInitiation": int(value["DaysAfterInitiation"])}
            case "Transitions":
                parameters[name] = [
                    {"Days": int(transition["TransitionInDays"]), "StorageClass": transition["StorageClass"]}
                    for transition in value
                ]
            case _:
                raise ValueError(f"unknown lifecycle rule property {name}: add it to infra/local/formation/bucket.py")
    return parameters


def _notification(properties: dict[str, Any]) -> dict[str, Any]:
    """A notification configuration as the API's parameters: CloudFormation has one `Event`, and `Filter.S3Key`."""
    kinds = {
        "QueueConfigurations": ("Queue", "QueueArn"),
        "LambdaConfigurations": ("Function", "LambdaFunctionArn"),
        "TopicConfigurations": ("Topic", "TopicArn"),
    }
    parameters: dict[str, Any] = {}
    for section, (property_name, parameter) in kinds.items():
        entries = [_entry(entry, property_name, parameter) for entry in properties.get(section, [])]
        if entries:
            parameters["LambdaFunctionConfigurations" if property_name == "Function" else section] = entries
    if "EventBridgeConfiguration" in properties:
        parameters["EventBridgeConfiguration"] = {}
    return parameters


def _entry(entry: dict[str, Any], property_name: str, parameter: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {parameter: entry[property_name], "Events": [entry["Event"]]}
    if "Filter" in entry:
        rules = entry["Filter"]["S3Key"]["Rules"]
        parameters["Filter"] = {"Key": {"FilterRules": rules}}
    return parameters
