"""The CloudFormation types of our stacks, each with the API calls that make it. Add a row when a stack needs one."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any

from infra.local.endpoint import REGION
from infra.local.formation.bucket import create_bucket, update_bucket
from infra.local.formation.resource import ApiType, Made, Properties

# Types whose presence changes nothing that can be seen from the lake. Everything else unknown is an error.
OPAQUE = frozenset(
    {
        "AWS::CDK::Metadata",
        "AWS::CE::AnomalyMonitor",  # there is no bill here to watch
        "AWS::CE::AnomalySubscription",
        "AWS::LakeFormation::Resource",  # moto asks nobody for permission, Lake Formation least of all
    }
)


def call(method: str, *, keep: tuple[str, ...] = (), drop: tuple[str, ...] = ("Tags",)) -> Callable[..., Any]:
    """CloudFormation properties are the API's parameters, name for name, but for a few."""

    def create(client: Any, properties: Properties) -> Mapping[str, Any]:
        chosen = {k: v for k, v in properties.items() if (k in keep if keep else k not in drop)}
        answer: Mapping[str, Any] = getattr(client, method)(**chosen)
        return answer

    return create


def camel(value: Any) -> Any:
    """EMR Serverless writes in CloudFormation `AutoStopConfiguration` what its API calls `autoStopConfiguration`."""
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: camel(item) for key, item in value.items()}
    if isinstance(value, list):
        return [camel(item) for item in value]
    return value


def _create_database(client: Any, properties: Properties) -> Mapping[str, Any]:
    client.create_database(DatabaseInput=properties["DatabaseInput"])
    return {"Name": properties["DatabaseInput"]["Name"]}


def _create_bucket_policy(client: Any, properties: Properties) -> Mapping[str, Any]:
    client.put_bucket_policy(Bucket=properties["Bucket"], Policy=json.dumps(properties["PolicyDocument"]))
    return {}


def _create_queue_policy(client: Any, properties: Properties) -> Mapping[str, Any]:
    for url in properties["Queues"]:
        client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(properties["PolicyDocument"])})
    return {"Name": "-".join(url.rsplit("/", 1)[1] for url in properties["Queues"])}


def _create_topic_policy(client: Any, properties: Properties) -> Mapping[str, Any]:
    for arn in properties["Topics"]:
        document = json.dumps(properties["PolicyDocument"])
        client.set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=document)
    return {"Name": "-".join(arn.rsplit(":", 1)[1] for arn in properties["Topics"])}


def _create_alarm(client: Any, properties: Properties) -> Mapping[str, Any]:
    numbers = {"Threshold": float, "EvaluationPeriods": int, "Period": int, "DatapointsToAlarm": int}
    fields = {key: numbers.get(key, lambda value: value)(value) for key, value in properties.items() if key != "Tags"}
    client.put_metric_alarm(**fields)
    name = properties["AlarmName"]
    (made,) = client.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return {"AlarmNames": [name], "Name": name, "Arn": made["AlarmArn"]}


def _update_alarm(client: Any, made: Made, properties: Properties) -> None:
    _create_alarm(client, properties)


def _create_dashboard(client: Any, properties: Properties) -> Mapping[str, Any]:
    body = properties["DashboardBody"]
    client.put_dashboard(
        DashboardName=properties["DashboardName"], DashboardBody=body if isinstance(body, str) else json.dumps(body)
    )
    return {"DashboardNames": [properties["DashboardName"]], "Name": properties["DashboardName"]}


def _create_secret(client: Any, properties: Properties) -> Mapping[str, Any]:
    text = properties.get("SecretString")
    if text is None:
        rule = properties.get("GenerateSecretString", {})
        alphabet = string.ascii_letters + string.digits
        text = "".join(secrets.choice(alphabet) for _ in range(int(rule.get("PasswordLength", 32))))
    answer = client.create_secret(Name=properties["Name"], SecretString=text)
    return {"ARN": answer["ARN"], "SecretId": answer["ARN"], "ForceDeleteWithoutRecovery": True}


def _create_function(client: Any, properties: Properties) -> Mapping[str, Any]:
    """moto's own model drops PackageType and ImageConfig, and with them the handler's name."""
    parameters = {k: v for k, v in properties.items() if k not in ("Tags", "ReservedConcurrentExecutions", "KmsKeyArn")}
    if "KmsKeyArn" in properties:
        parameters["KMSKeyArn"] = properties["KmsKeyArn"]
    parameters["Tags"] = {tag["Key"]: str(tag["Value"]) for tag in properties.get("Tags", [])}
    for number in ("Timeout", "MemorySize"):
        if number in parameters:
            parameters[number] = int(parameters[number])
    answer = client.create_function(**parameters)
    _reserve(client, properties)
    return {"FunctionArn": answer["FunctionArn"]}


def _update_function(client: Any, made: Made, properties: Properties) -> None:
    name = made["FunctionName"]
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


def _update_schedule(client: Any, made: Made, properties: Properties) -> None:
    client.update_schedule(**{**properties, "Name": made["Name"]})


def _create_pool(client: Any, properties: Properties) -> Mapping[str, Any]:
    kept = ("Policies", "AutoVerifiedAttributes", "UsernameAttributes", "MfaConfiguration", "AdminCreateUserConfig")
    pool = client.create_user_pool(
        PoolName=properties["UserPoolName"], **{key: properties[key] for key in kept if key in properties}
    )["UserPool"]
    region = pool["Id"].partition("_")[0]
    provider = f"cognito-idp.{region}.amazonaws.com/{pool['Id']}"
    return {"UserPoolId": pool["Id"], "Arn": pool["Arn"], "Provider": provider, "Url": f"https://{provider}"}


def _create_pool_client(client: Any, properties: Properties) -> Mapping[str, Any]:
    kept = {key: properties[key] for key in ("UserPoolId", "ClientName", "ExplicitAuthFlows") if key in properties}
    return {"ClientId": client.create_user_pool_client(**kept)["UserPoolClient"]["ClientId"]}


def _create_key(client: Any, properties: Properties) -> Mapping[str, Any]:
    policy = json.dumps(properties["KeyPolicy"])
    key = client.create_key(Policy=policy, Description=properties.get("Description", ""))["KeyMetadata"]
    if properties.get("EnableKeyRotation") in (True, "true"):
        client.enable_key_rotation(KeyId=key["KeyId"])
    return {"KeyId": key["KeyId"], "Arn": key["Arn"], "PendingWindowInDays": int(properties["PendingWindowInDays"])}


def _update_key(client: Any, made: Made, properties: Properties) -> None:
    client.put_key_policy(KeyId=made["KeyId"], PolicyName="default", Policy=json.dumps(properties["KeyPolicy"]))


def _stand_in(prefix: str, **attributes: str) -> Callable[..., Any]:
    """For CloudFront, which is not served here: an id, and what else Ref and GetAtt ask for."""

    def create(client: Any, properties: Properties) -> Mapping[str, Any]:
        id_ = prefix + secrets.token_hex(6).upper()
        return {"Id": id_, **{name: text.format(id=id_) for name, text in attributes.items()}}

    return create


def _create_application(client: Any, properties: Properties) -> Mapping[str, Any]:
    fields = {key: value for key, value in properties.items() if key != "Tags"}
    tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}
    answer = client.create_application(**camel(fields), tags=tags)
    return {"applicationId": answer["applicationId"], "Arn": answer["arn"]}


def _create_domain(client: Any, properties: Properties) -> Mapping[str, Any]:
    """Nobody is served under the name here; the gateway's own address stays."""
    answer = call("create_domain_name")(client, properties)
    return {**answer, "RegionalDomainName": f"d-{secrets.token_hex(5)}.execute-api.{REGION}.amazonaws.com"}


def _api_child(type_: str, method: str, key: str, *, delete: str) -> ApiType:
    return ApiType(
        f"AWS::ApiGatewayV2::{type_}",
        "apigatewayv2",
        call(method),
        delete=delete,
        identity=("ApiId", key),
        ref=key,
        attributes={key: key},
    )


TYPES: tuple[ApiType, ...] = (
    ApiType(
        "AWS::S3::Bucket",
        "s3",
        create_bucket,
        update=update_bucket,
        delete="delete_bucket",
        identity=("Bucket",),
        name="BucketName",
        ref="BucketName",
        attributes={"Arn": "Arn", "DomainName": "DomainName", "RegionalDomainName": "DomainName"},
    ),
    ApiType(
        "AWS::S3::BucketPolicy",
        "s3",
        _create_bucket_policy,
        delete="delete_bucket_policy",
        identity=("Bucket",),
        ref="Bucket",
    ),
    ApiType("AWS::SQS::QueuePolicy", "sqs", _create_queue_policy),
    ApiType("AWS::SNS::TopicPolicy", "sns", _create_topic_policy),
    ApiType(
        "AWS::CloudWatch::Alarm",
        "cloudwatch",
        _create_alarm,
        update=_update_alarm,
        delete="delete_alarms",
        identity=("AlarmNames",),
        name="AlarmName",
        ref="Name",
        attributes={"Arn": "Arn"},
    ),
    ApiType(
        "AWS::CloudWatch::Dashboard",
        "cloudwatch",
        _create_dashboard,
        delete="delete_dashboards",
        identity=("DashboardNames",),
        name="DashboardName",
        ref="Name",
    ),
    ApiType("AWS::Glue::Database", "glue", _create_database, delete="delete_database", identity=("Name",)),
    ApiType(
        "AWS::SecretsManager::Secret",
        "secretsmanager",
        _create_secret,
        delete="delete_secret",
        identity=("SecretId", "ForceDeleteWithoutRecovery"),
        name="Name",
        ref="ARN",
        attributes={"Id": "ARN"},
        update=lambda client, made, properties: None,
    ),
    ApiType(
        "AWS::Lambda::Function",
        "lambda",
        _create_function,
        update=_update_function,
        delete="delete_function",
        identity=("FunctionName",),
        name="FunctionName",
        ref="FunctionName",
        attributes={"Arn": "FunctionArn"},
    ),
    ApiType(  # moto knows this type, but its Ref is no string
        "AWS::Events::EventBus",
        "events",
        call("create_event_bus"),
        delete="delete_event_bus",
        identity=("Name",),
        name="Name",
        attributes={"Arn": "EventBusArn", "Name": "Name"},
    ),
    ApiType(
        "AWS::Scheduler::ScheduleGroup",
        "scheduler",
        call("create_schedule_group"),
        delete="delete_schedule_group",
        identity=("Name",),
        name="Name",
        attributes={"Arn": "ScheduleGroupArn"},
    ),
    ApiType(
        "AWS::Scheduler::Schedule",
        "scheduler",
        call("create_schedule"),
        update=_update_schedule,
        delete="delete_schedule",
        identity=("Name",),
        name="Name",
        attributes={"Arn": "ScheduleArn"},
    ),
    ApiType(
        "AWS::EMRServerless::Application",
        "emr-serverless",
        _create_application,
        delete="delete_application",
        identity=("applicationId",),
        ref="applicationId",
        attributes={"ApplicationId": "applicationId", "Arn": "Arn"},
    ),
    ApiType(
        "AWS::KMS::Key",
        "kms",
        _create_key,
        update=_update_key,
        delete="schedule_key_deletion",
        identity=("KeyId", "PendingWindowInDays"),
        ref="KeyId",
        attributes={"Arn": "Arn", "KeyId": "KeyId"},
    ),
    ApiType(
        "AWS::KMS::Alias",
        "kms",
        call("create_alias"),
        delete="delete_alias",
        identity=("AliasName",),
        ref="AliasName",
    ),
    ApiType(
        "AWS::Cognito::UserPool",
        "cognito-idp",
        _create_pool,
        delete="delete_user_pool",
        identity=("UserPoolId",),
        name="UserPoolName",
        ref="UserPoolId",
        attributes={"Arn": "Arn", "UserPoolId": "UserPoolId", "ProviderName": "Provider", "ProviderURL": "Url"},
        update=lambda client, made, properties: None,
    ),
    ApiType(
        "AWS::Cognito::UserPoolClient",
        "cognito-idp",
        _create_pool_client,
        delete="delete_user_pool_client",
        identity=("UserPoolId", "ClientId"),
        ref="ClientId",
        attributes={"ClientId": "ClientId"},
        update=lambda client, made, properties: None,
    ),
    ApiType(
        "AWS::Cognito::UserPoolGroup",
        "cognito-idp",
        call("create_group"),
        delete="delete_group",
        identity=("UserPoolId", "GroupName"),
        ref="GroupName",
    ),
    ApiType(
        "AWS::CloudFront::Distribution",
        "cloudfront",
        _stand_in("E", DomainName="{id}.cloudfront.net"),
        ref="Id",
        attributes={"Id": "Id", "DomainName": "DomainName"},
        update=lambda client, made, properties: None,
    ),
    ApiType(
        "AWS::CloudFront::OriginAccessControl",
        "cloudfront",
        _stand_in("A"),
        ref="Id",
        attributes={"Id": "Id"},
        update=lambda client, made, properties: None,
    ),
    ApiType(
        "AWS::CloudFront::CachePolicy",
        "cloudfront",
        _stand_in("P"),
        ref="Id",
        attributes={"Id": "Id"},
        update=lambda client, made, properties: None,
    ),
    ApiType(
        "AWS::ApiGatewayV2::Api",
        "apigatewayv2",
        call("create_api"),
        delete="delete_api",
        identity=("ApiId",),
        ref="ApiId",
        attributes={"ApiId": "ApiId", "ApiEndpoint": "ApiEndpoint"},
    ),
    ApiType(
        "AWS::ApiGatewayV2::DomainName",
        "apigatewayv2",
        _create_domain,
        delete="delete_domain_name",
        identity=("DomainName",),
        ref="DomainName",
        attributes={"RegionalDomainName": "RegionalDomainName"},
    ),
    ApiType(
        "AWS::ApiGatewayV2::ApiMapping",
        "apigatewayv2",
        call("create_api_mapping"),
        delete="delete_api_mapping",
        identity=("ApiMappingId", "DomainName"),
        ref="ApiMappingId",
    ),
    _api_child("Integration", "create_integration", "IntegrationId", delete="delete_integration"),
    _api_child("Route", "create_route", "RouteId", delete="delete_route"),
    _api_child("Authorizer", "create_authorizer", "AuthorizerId", delete="delete_authorizer"),
    _api_child("Stage", "create_stage", "StageName", delete="delete_stage"),
)
