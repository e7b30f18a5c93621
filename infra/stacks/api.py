"""The HTTP API: the routes of catalog.access.routes, each behind its authorizer, and the function that they reach."""

from __future__ import annotations

import json

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam
from constructs import Construct

from catalog import places
from catalog.access.routes import ROUTES, SIGNED_PREFIX
from catalog.settings import variable_of
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
    """No CORS: no browser of another origin has business here."""

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
        self._function = self._api_function()
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
        self._routes(self._integration(), authorizer)
        deployed = self._deployment()
        CfnOutput(self, "Endpoint", value=self.api.attr_api_endpoint)
        if stage.api_domain is not None and stage.api_certificate is not None:
            self._domain(deployed, stage.api_domain, stage.api_certificate)

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
                variable_of("principals"): json.dumps(self._stage.principals, sort_keys=True),
            },
            timeout=Duration.seconds(TIMEOUT_S),
            memory_mb=1024,
            concurrency=self._stage.api_concurrency,
            key=self._storage.key,
        )
        function = api.function
        tables = (places.TABLES, places.TRANSACTIONS, places.ATTESTATIONS)
        files = (places.LANDING, places.INGESTED, places.QUARANTINE)
        kept = (places.REQUESTS, places.RESULTS, places.HISTORY)
        grant_objects(
            function,
            self._storage.bucket,
            self._storage.key,
            read=(*tables, places.TIMELINE, places.TIMELINE_STORE, *files, *kept, places.VECTORS, places.RULES),
            # Landing and results by links that carry this role's permission; the rest as every writer of tables does.
            put=(*tables, places.LANDING, *kept, places.RULES),
            # A cancelled query's rows are forgotten, and a rule that was removed.
            delete=(places.TABLES, places.QUERIES, places.RULES),
        )
        self._may_run_queries(function)
        moved = self._compute.moved.queue
        moved.grant_send_messages(function)
        moved.grant(function, "sqs:GetQueueAttributes")
        changing = ("glue:CreateDatabase", "glue:CreateTable", "glue:UpdateTable", "glue:DeleteTable")
        grant_catalog(function, self, *READ_GLUE, *changing)
        return api

    def _may_run_queries(self, function: iam.IGrantable) -> None:
        """Runs of the one application, under the one role: no other job, no other application."""
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

    def _integration(self) -> apigateway.CfnIntegration:
        function = self._function.function
        function.add_permission(
            "Gateway",
            principal=iam.ServicePrincipal("apigateway.amazonaws.com"),
            source_arn=self.format_arn(service="execute-api", resource=self.api.ref, resource_name="*"),
        )
        return apigateway.CfnIntegration(
            self,
            "Integration",
            api_id=self.api.ref,
            integration_type="AWS_PROXY",
            integration_uri=function.function_arn,
            payload_format_version="2.0",
            timeout_in_millis=TIMEOUT_S * 1000,
        )

    def _routes(self, integration: apigateway.CfnIntegration, authorizer: apigateway.CfnAuthorizer) -> None:
        target = f"integrations/{integration.ref}"
        api_id = self.api.ref
        for route in ROUTES:
            named = "".join(filter(str.isalnum, route.key.title()))
            apigateway.CfnRoute(
                self,
                named,
                api_id=api_id,
                route_key=route.key,
                target=target,
                authorization_type=None if route.public else "JWT",
                authorizer_id=None if route.public else authorizer.ref,
            )
        signed = f"ANY {SIGNED_PREFIX}/{{path+}}"
        apigateway.CfnRoute(
            self, "Signed", api_id=api_id, route_key=signed, target=target, authorization_type="AWS_IAM"
        )
        # So that what is not there is refused in the same words as everything else; the function serves nothing here.
        apigateway.CfnRoute(self, "Elsewhere", api_id=api_id, route_key="$default", target=target)

    def _domain(self, deployed: apigateway.CfnStage, name: str, certificate: str) -> None:
        """The API under a name of the operator's, who points it (CNAME or alias) to the output `DomainTarget`."""
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
            self, "DomainMapping", api_id=self.api.ref, domain_name=domain.ref, stage=deployed.ref
        )
        mapping.add_dependency(deployed)
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
                detailed_metrics_enabled=True,
            ),
        )
