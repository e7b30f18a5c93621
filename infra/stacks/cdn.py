"""CloudFront in front of the timeline's public objects. It serves no other object of the bucket."""

from __future__ import annotations

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudfront_origins as origins
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from catalog.core import s3_layout

# Tiles and entry bundles never change. The checkpoint does, and a partial tile may be removed.
IMMUTABLE = ("tile/*",)


class TimelineCdn(Construct):
    """Caches the checkpoint for five seconds, and tiles with CloudFront's CachingOptimized policy.

    Without `public_entries` it is denied the entries: the bucket answers 403, whatever the path looks like.
    """

    def __init__(
        self, scope: Construct, id: str, *, bucket: s3.Bucket, key: kms.Key | None, public_entries: bool
    ) -> None:
        super().__init__(scope, id)
        access = cloudfront.S3OriginAccessControl(self, "Access")
        origin = origins.S3BucketOrigin.with_bucket_defaults(
            bucket,
            origin_path=f"/{s3_layout.TIMELINE.rstrip('/')}",
            origin_access_control_id=access.origin_access_control_id,
        )
        fresh = cloudfront.CachePolicy(
            self, "Fresh", default_ttl=Duration.seconds(5), min_ttl=Duration.seconds(0), max_ttl=Duration.seconds(5)
        )

        def behaviour(cache: cloudfront.ICachePolicy) -> cloudfront.BehaviorOptions:
            return cloudfront.BehaviorOptions(
                origin=origin,
                cache_policy=cache,
                viewer_protocol_policy=cloudfront.ViewerProtocolPolicy.HTTPS_ONLY,
                allowed_methods=cloudfront.AllowedMethods.ALLOW_GET_HEAD,
                response_headers_policy=cloudfront.ResponseHeadersPolicy.CORS_ALLOW_ALL_ORIGINS_AND_SECURITY_HEADERS,
            )

        self.distribution = cloudfront.Distribution(
            self,
            "Distribution",
            comment="the timeline: checkpoint, keys, tiles",
            default_behavior=behaviour(fresh),
            additional_behaviors=dict.fromkeys(IMMUTABLE, behaviour(cloudfront.CachePolicy.CACHING_OPTIMIZED)),
        )
        self._allow_reading(bucket, key, public_entries)
        CfnOutput(self, "Address", value=f"https://{self.distribution.distribution_domain_name}")

    def _allow_reading(self, bucket: s3.Bucket, key: kms.Key | None, public_entries: bool) -> None:
        reader = iam.ServicePrincipal("cloudfront.amazonaws.com")
        bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid="TheTimelineIsPublic",
                actions=["s3:GetObject"],
                resources=[bucket.arn_for_objects(f"{s3_layout.TIMELINE}*")],
                principals=[reader],
                conditions={"StringEquals": {"aws:SourceArn": self.distribution.distribution_arn}},
            )
        )
        if not public_entries:
            bucket.add_to_resource_policy(
                iam.PolicyStatement(
                    sid="EntriesAreNotPublic",
                    effect=iam.Effect.DENY,
                    actions=["s3:GetObject"],
                    resources=[bucket.arn_for_objects(f"{s3_layout.TIMELINE_ENTRIES}*")],
                    principals=[reader],
                )
            )
        if key is not None:
            # The condition names the account, not the distribution: that would be a circular dependency between bucket,
            # key and distribution.
            key.add_to_resource_policy(
                iam.PolicyStatement(
                    sid="TheTimelineIsPublic",
                    actions=["kms:Decrypt"],
                    resources=["*"],
                    principals=[reader],
                    conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
                )
            )
