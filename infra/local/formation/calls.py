"""The API calls that create and update resources, for types whose properties are not simply the API's parameters."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any

from infra.local.endpoint import ACCOUNT, REGION
from infra.local.formation.resource import Properties, State


def call(method: str) -> Callable[..., Any]:
    """A create function that calls `method` with the properties, except Tags, as parameters."""

    def create(client: Any, properties: Properties) -> Mapping[str, Any]:
        parameters = {name: value for name, value in properties.items() if name != "Tags"}
        response: Mapping[str, Any] = getattr(client, method)(**parameters)
        return response

    return create


def camel(value: Any) -> Any:
    """The value with keys in camelCase: CloudFormation's `AutoStopConfiguration` is `autoStopConfiguration` in the API
    of EMR Serverless."""
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: camel(item) for key, item in value.items()}
    if isinstance(value, list):
        return [camel(item) for item in value]
    return value


def create_database(client: Any, properties: Properties) -> Mapping[str, Any]:
    client.create_database(DatabaseInput=properties["DatabaseInput"])
    return {"Name": properties["DatabaseInput"]["Name"]}


def create_budget(client: Any, properties: Properties) -> Mapping[str, Any]:
    budget = {key: value for key, value in properties["Budget"].items() if key not in ("CostFilters", "BudgetLimit")}
    limit = {key: str(value) for key, value in properties["Budget"]["BudgetLimit"].items()}
    client.create_budget(AccountId=ACCOUNT, Budget={**budget, "BudgetLimit": limit})
    return {"AccountId": ACCOUNT, "BudgetName": budget["BudgetName"]}


def create_bucket_policy(client: Any, properties: Properties) -> Mapping[str, Any]:
    client.put_bucket_policy(Bucket=properties["Bucket"], Policy=json.dumps(properties["PolicyDocument"]))
    return {}


def create_queue_policy(client: Any, properties: Properties) -> Mapping[str, Any]:
    for url in properties["Queues"]:
        client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(properties["PolicyDocument"])})
    return {"Name": "-".join(url.rsplit("/", 1)[1] for url in properties["Queues"])}


def create_topic_policy(client: Any, properties: Properties) -> Mapping[str, Any]:
    for arn in properties["Topics"]:
        document = json.dumps(properties["PolicyDocument"])
        client.set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=document)
    return {"Name": "-".join(arn.rsplit(":", 1)[1] for arn in properties["Topics"])}


def create_alarm(client: Any, properties: Properties) -> Mapping[str, Any]:
    numbers = {"Threshold": float, "EvaluationPeriods": int, "Period": int, "DatapointsToAlarm": int}
    fields = {key: numbers.get(key, lambda value: value)(value) for key, value in properties.items() if key != "Tags"}
    client.put_metric_alarm(**fields)
    name = properties["AlarmName"]
    (alarm,) = client.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return {"AlarmNames": [name], "Name": name, "Arn": alarm["AlarmArn"]}


def ignore_update(client: Any, state: State, properties: Properties) -> None:
    """For types whose properties the embedded cloud does not use after creation."""


def update_alarm(client: Any, state: State, properties: Properties) -> None:
    create_alarm(client, properties)


def create_dashboard(client: Any, properties: Properties) -> Mapping[str, Any]:
    body = properties["DashboardBody"]
    client.put_dashboard(
        DashboardName=properties["DashboardName"], DashboardBody=body if isinstance(body, str) else json.dumps(body)
    )
    return {"DashboardNames": [properties["DashboardName"]], "Name": properties["DashboardName"]}


def create_secret(client: Any, properties: Properties) -> Mapping[str, Any]:
    secret = properties.get("SecretString")
    if secret is None:
        options = properties.get("GenerateSecretString", {})
        alphabet = string.ascii_letters + string.digits
        secret = "".join(secrets.choice(alphabet) for _ in range(int(options.get("PasswordLength", 32))))
    response = client.create_secret(Name=properties["Name"], SecretString=secret)
    return {"ARN": response["ARN"], "SecretId": response["ARN"], "ForceDeleteWithoutRecovery": True}


def create_function(client: Any, properties: Properties) -> Mapping[str, Any]:
    """moto's own CloudFormation model drops PackageType and ImageConfig, and with them the handler's name."""
    parameters = {k: v for k, v in properties.items() if k not in ("Tags", "ReservedConcurrentExecutions", "KmsKeyArn")}
    if "KmsKeyArn" in properties:
        parameters["KMSKeyArn"] = properties["KmsKeyArn"]
    parameters["Tags"] = {tag["Key"]: str(tag["Value"]) for tag in properties.get("Tags", [])}
    for number in ("Timeout", "MemorySize"):
        if number in parameters:
            parameters[number] = int(parameters[number])
    response = client.create_function(**parameters)
    _reserve(client, properties)
    return {"FunctionArn": response["FunctionArn"]}


def update_function(client: Any, state: State, properties: Properties) -> None:
    name = state["FunctionName"]
    fields = ("Timeout", "MemorySize", "Environment", "Role", "ImageConfig", "Handler")
    client.update_function_configuration(
        FunctionName=name, **{key: properties[key] for key in fields if key in properties}
    )
    _reserve(client, {**properties, "FunctionName": name})


def _reserve(client: Any, properties: Properties) -> None:
    if "ReservedConcurrentExecutions" in properties:
        client.put_function_concurrency(
            FunctionName=properties["FunctionName"],
            ReservedConcurrentExecutions=int(properties["ReservedConcurrentExecutions"]),
        )


def update_schedule(client: Any, state: State, properties: Properties) -> None:
    client.update_schedule(**{**properties, "Name": state["Name"]})


def create_pool(client: Any, properties: Properties) -> Mapping[str, Any]:
    supported = (
        "Policies",
        "AutoVerifiedAttributes",
        "UsernameAttributes",
        "MfaConfiguration",
        "AdminCreateUserConfig",
    )
    pool = client.create_user_pool(
        PoolName=properties["UserPoolName"], **{key: properties[key] for key in supported if key in properties}
    )["UserPool"]
    region = pool["Id"].partition("_")[0]
    provider = f"cognito-idp.{region}.amazonaws.com/{pool['Id']}"
    return {"UserPoolId": pool["Id"], "Arn": pool["Arn"], "Provider": provider, "Url": f"https://{provider}"}


def create_pool_client(client: Any, properties: Properties) -> Mapping[str, Any]:
    parameters = {
        key: properties[key] for key in ("UserPoolId", "ClientName", "ExplicitAuthFlows") if key in properties
    }
    return {"ClientId": client.create_user_pool_client(**parameters)["UserPoolClient"]["ClientId"]}


def create_key(client: Any, properties: Properties) -> Mapping[str, Any]:
    policy = json.dumps(properties["KeyPolicy"])
    kind = {name: properties[name] for name in ("KeySpec", "KeyUsage") if name in properties}
    key = client.create_key(Policy=policy, Description=properties.get("Description", ""), **kind)["KeyMetadata"]
    if properties.get("EnableKeyRotation") in (True, "true"):
        client.enable_key_rotation(KeyId=key["KeyId"])
    return {"KeyId": key["KeyId"], "Arn": key["Arn"], "PendingWindowInDays": int(properties["PendingWindowInDays"])}


def update_key(client: Any, state: State, properties: Properties) -> None:
    client.put_key_policy(KeyId=state["KeyId"], PolicyName="default", Policy=json.dumps(properties["KeyPolicy"]))


def create_stand_in(prefix: str, **attributes: str) -> Callable[..., Any]:
    """A create function for CloudFront, which is not emulated: returns only an id and the attributes for GetAtt."""

    def create(client: Any, properties: Properties) -> Mapping[str, Any]:
        id_ = prefix + secrets.token_hex(6).upper()
        return {"Id": id_, **{name: text.format(id=id_) for name, text in attributes.items()}}

    return create


def create_application(client: Any, properties: Properties) -> Mapping[str, Any]:
    fields = {key: value for key, value in properties.items() if key != "Tags"}
    tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}
    response = client.create_application(**camel(fields), tags=tags)
    return {"applicationId": response["applicationId"], "Arn": response["arn"]}


def create_domain(client: Any, properties: Properties) -> Mapping[str, Any]:
    """The gateway does not serve the custom domain name; its own URL stays in use."""
    response = call("create_domain_name")(client, properties)
    return {**response, "RegionalDomainName": f"d-{secrets.token_hex(5)}.execute-api.{REGION}.amazonaws.com"}
