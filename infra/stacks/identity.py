"""The issuer of the API's tokens: the one that the stage names, or a Cognito user pool of the lake's own."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import CfnOutput, CfnParameter, Duration, RemovalPolicy
from aws_cdk import aws_cognito as cognito
from constructs import Construct

from infra.stage import Stage


@dataclass(frozen=True)
class Identity:
    issuer: str
    audience: str


def identity_of(scope: Construct, stage: Stage) -> Identity:
    if stage.issuer is None or stage.audience is None:
        return _pool(scope, stage)
    # Stack parameters, because a deployment may override the issuer: the embedded cloud passes its own.
    issuer = CfnParameter(scope, "Issuer", default=stage.issuer, description="OIDC issuer of the callers' tokens")
    audience = CfnParameter(scope, "Audience", default=stage.audience, description="what their tokens are for")
    return Identity(issuer.value_as_string, audience.value_as_string)


def _pool(scope: Construct, stage: Stage) -> Identity:
    """A user pool without self sign-up. Groups are roles: `strandline:admin` is created, operators add others."""
    pool = cognito.UserPool(
        scope,
        "People",
        user_pool_name=stage.resource("people"),
        self_sign_up_enabled=False,
        sign_in_aliases=cognito.SignInAliases(email=True),
        mfa=cognito.Mfa.REQUIRED,
        mfa_second_factor=cognito.MfaSecondFactor(otp=True, sms=False),
        account_recovery=cognito.AccountRecovery.EMAIL_ONLY,
        password_policy=cognito.PasswordPolicy(
            min_length=14, require_digits=True, require_lowercase=True, require_symbols=True, require_uppercase=True
        ),
        deletion_protection=stage.retain_data,
        removal_policy=RemovalPolicy.RETAIN if stage.retain_data else RemovalPolicy.DESTROY,
    )
    client = cognito.UserPoolClient(
        scope,
        "Client",
        user_pool=pool,
        user_pool_client_name=stage.resource("client"),
        auth_flows=cognito.AuthFlow(user_srp=True),
        disable_o_auth=True,
        access_token_validity=Duration.hours(1),
        prevent_user_existence_errors=True,
    )
    cognito.CfnUserPoolGroup(scope, "Admins", user_pool_id=pool.user_pool_id, group_name=f"{stage.role_prefix}admin")
    CfnOutput(scope, "UserPool", value=pool.user_pool_id)
    CfnOutput(scope, "UserPoolClient", value=client.user_pool_client_id)
    return Identity(pool.user_pool_provider_url, client.user_pool_client_id)
