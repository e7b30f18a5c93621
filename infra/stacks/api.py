"""The HTTP API: the routes of catalog.access.routes, each with its authorizer, and the function behind them."""

from __future__ import annotations

import json

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from catalog.access import ROUTES, SIGNED_PREFIX
from catalog.core import s3_layout
from catalog.core.settings import variable_of
from infra.stacks.canary import Canary
from infra.stacks.compute import ComputeStack
from infra.stacks.functions import LakeFunction
from infra.stacks.grants import READ_GLUE, grant_catalog, grant_objects
from infra.stacks.identity import identity_of
from infra.stacks.jobs import JobsStack
from infra.stacks.logs import log_group
from infra.stacks.storage import StorageStack
from infra.stage import Stage

TIMEOUT_S = 29
ACCESS_LOG = {
    "requestId": "$context.requestId",
    "routeKey": "$context.routeKey",
    "path": "$context.path",
    "status": "$context.status",
    "sourceIp": "$context.identity.sourceIp",
    "subject": "$context.authorizer.claims.sub",
    "error": "$context.authorizer.error",
    "latencyMs": "$context.responseLatency",
}


class ApiStack(Stack):
    """Without CORS: pages of other origins do not call this API."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        stage: Stage,
        storage: StorageStack,
        compute: ComputeStack,
        jobs: JobsStack,
    ) -> None:
        super().__init__(scope, id)
        self._stage = stage
        self._storage, self._compute, self._jobs = storage, compute, jobs
        identity = identity_of(self, stage)
        self._usage = self._usage_table()
        self._function = self._api_function()
        self._public = self._public_function()
        self.api = apigateway.CfnApi(self, "Api", name=stage.resource("api"), protocol_type="HTTP")
        authorizer = apigateway.CfnAuthorizer(
            self,
            "Tokens",
            api_id=self.api.ref,
            name="tokens",
            authorizer_type="JWT",
            identity_source=["$request.header.Authorization"],
            jwt_configuration=apigateway.CfnAuthorizer.JWTConfigurationProperty(
                issuer=identity.issuer, audience=[identity.audience]
            ),
        )
        self._routes(
            self._integration("Integration", self._function), self._integration("Public", self._public), authorizer
        )
        deployment_stage = self._deployment()
        Canary(self, "Canary", stage=stage, storage=storage, compute=compute)
        CfnOutput(self, "Endpoint", value=self.api.attr_api_endpoint)
        if stage.api_domain is not None and stage.api_certificate is not None:
            self._domain(deployment_stage, stage.api_domain, stage.api_certificate)

    def _api_function(self) -> LakeFunction:
        api = LakeFunction(
            self,
            "Function",
            stage=self._stage,
            name="api",
            extra="api",
            environment={
                **self._compute.settings(),
                variable_of("jobs_application"): self._jobs.application.attr_application_id,
                variable_of("jobs_role"): self._jobs.role.role_arn,
                variable_of("role_prefix"): self._stage.role_prefix,
                **self._entries_setting(),
                variable_of("limits_table"): self._usage.table_name,
                variable_of("limits"): json.dumps(self._stage.limits, sort_keys=True),
                variable_of("principals"): json.dumps(self._stage.principals, sort_keys=True),
            },
            timeout=Duration.seconds(TIMEOUT_S),
            memory_mb=1024,
            concurrency=self._stage.api_concurrency,
            key=self._storage.key,
        )
        function = api.function
        tables = (s3_layout.TABLES, s3_layout.TRANSACTIONS, s3_layout.ATTESTATIONS)
        files = (s3_layout.LANDING, s3_layout.INGESTED, s3_layout.QUARANTINE)
        queries = (s3_layout.REQUESTS, s3_layout.RESULTS, s3_layout.HISTORY)
        grant_objects(
            function,
            self._storage.bucket,
            self._storage.key,
            read=(
                *tables,
                s3_layout.TIMELINE,
                s3_layout.TIMELINE_STORE,
                *files,
                *queries,
                s3_layout.VECTORS,
                s3_layout.RULES,
                s3_layout.ERASE_REQUESTS,
            ),
            # Landed files and results are written through presigned URLs, which carry this role's permissions.
            put=(*tables, s3_layout.LANDING, *queries, s3_layout.RULES, s3_layout.ERASE_REQUESTS),
            # Deletes a cancelled query's rows, and a rule that was removed.
            delete=(s3_layout.TABLES, s3_layout.QUERIES, s3_layout.RULES),
        )
        self._usage.grant(function, "dynamodb:UpdateItem")
        self._grant_query_jobs(function)
        moved = self._compute.moved.queue
        moved.grant_send_messages(function)
        moved.grant(function, "sqs:GetQueueAttributes")
        if self._compute.erasures is not None:
            self._compute.erasures.queue.grant_send_messages(function)
        write_glue = ("glue:CreateDatabase", "glue:CreateTable", "glue:UpdateTable", "glue:DeleteTable")
        grant_catalog(function, self, *READ_GLUE, *write_glue)
        return api

    def _usage_table(self) -> dynamodb.Table:
        """Counts what each caller uses, an item for each caller and hour, which expires by itself."""
        return dynamodb.Table(
            self,
            "Usage",
            table_name=self._stage.resource("usage"),
            partition_key=dynamodb.Attribute(name="caller", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute="expires",
            removal_policy=RemovalPolicy.DESTROY,
        )

    def _public_function(self) -> LakeFunction:
        """Serves the public routes: queries cannot keep them waiting. It may read the timeline and nothing else."""
        public = LakeFunction(
            self,
            "PublicFunction",
            stage=self._stage,
            name="public",
            extra="api",
            environment={**self._compute.settings(), **self._entries_setting()},
            timeout=Duration.seconds(TIMEOUT_S),
            memory_mb=512,
            concurrency=None,
            key=self._storage.key,
        )
        grant_objects(
            public.function,
            self._storage.bucket,
            self._storage.key,
            read=(s3_layout.TIMELINE, s3_layout.TIMELINE_STORE),
        )
        return public

    def _entries_setting(self) -> dict[str, str]:
        return {variable_of("public_entries"): str(self._stage.public_entries).lower()}

    def _grant_query_jobs(self, function: iam.IGrantable) -> None:
        """Allows starting, reading and cancelling job runs of the lake's application, with the lake's job role."""
        application, role = self._jobs.application.attr_arn, self._jobs.role.role_arn
        for statement in (
            iam.PolicyStatement(actions=["emr-serverless:StartJobRun"], resources=[application]),
            iam.PolicyStatement(
                actions=["emr-serverless:GetJobRun", "emr-serverless:CancelJobRun"],
                resources=[f"{application}/jobruns/*"],
            ),
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[role],
                conditions={"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
            ),
        ):
            function.grant_principal.add_to_principal_policy(statement)

    def _integration(self, id: str, served_by: LakeFunction) -> apigateway.CfnIntegration:
        function = served_by.function
        function.add_permission(
            "Gateway",
            principal=iam.ServicePrincipal("apigateway.amazonaws.com"),
            source_arn=self.format_arn(service="execute-api", resource=self.api.ref, resource_name="*"),
        )
        return apigateway.CfnIntegration(
            self,
            id,
            api_id=self.api.ref,
            integration_type="AWS_PROXY",
            integration_uri=function.function_arn,
            payload_format_version="2.0",
            timeout_in_millis=TIMEOUT_S * 1000,
        )

    def _routes(
        self,
        integration: apigateway.CfnIntegration,
        public: apigateway.CfnIntegration,
        authorizer: apigateway.CfnAuthorizer,
    ) -> None:
        target = f"integrations/{integration.ref}"
        api_id = self.api.ref
        for route in ROUTES:
            construct_id = "".join(filter(str.isalnum, route.key.title()))
            is_public = route.is_public(public_entries=self._stage.public_entries)
            apigateway.CfnRoute(
                self,
                construct_id,
                api_id=api_id,
                route_key=route.key,
                target=f"integrations/{public.ref}" if is_public else target,
                authorization_type=None if is_public else "JWT",
                authorizer_id=None if is_public else authorizer.ref,
            )
        signed = f"ANY {SIGNED_PREFIX}/{{path+}}"
        apigateway.CfnRoute(
            self, "Signed", api_id=api_id, route_key=signed, target=target, authorization_type="AWS_IAM"
        )
        # Unknown paths reach the function too, so that their 404 is a problem like every other error. Only with a
        # token: otherwise anybody could run the function.
        apigateway.CfnRoute(
            self,
            "Elsewhere",
            api_id=api_id,
            route_key="$default",
            target=target,
            authorization_type="JWT",
            authorizer_id=authorizer.ref,
        )

    def _domain(self, deployment_stage: apigateway.CfnStage, name: str, certificate: str) -> None:
        """A custom domain name. The operator points it (CNAME or alias) to the output `DomainTarget`."""
        domain = apigateway.CfnDomainName(
            self,
            "Domain",
            domain_name=name,
            domain_name_configurations=[
                apigateway.CfnDomainName.DomainNameConfigurationProperty(
                    certificate_arn=certificate, endpoint_type="REGIONAL", security_policy="TLS_1_2"
                )
            ],
        )
        mapping = apigateway.CfnApiMapping(
            self, "DomainMapping", api_id=self.api.ref, domain_name=domain.ref, stage=deployment_stage.ref
        )
        mapping.add_dependency(deployment_stage)
        CfnOutput(self, "DomainTarget", value=domain.attr_regional_domain_name)

    def _deployment(self) -> apigateway.CfnStage:
        log = log_group(self, "AccessLog", stage=self._stage, name=f"/aws/apigateway/{self._stage.resource('api')}")
        return apigateway.CfnStage(
            self,
            "Stage",
            api_id=self.api.ref,
            stage_name="$default",
            auto_deploy=True,
            access_log_settings=apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=log.log_group_arn, format=json.dumps(ACCESS_LOG)
            ),
            default_route_settings=apigateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=self._stage.requests_per_second,
                throttling_burst_limit=self._stage.request_burst,
                detailed_metrics_enabled=False,  # 60 routes, each with metrics of its own to pay for
            ),
        )
