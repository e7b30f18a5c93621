"""The Spark jobs: one EMR Serverless application that costs nothing while idle, its role, its schedules and starter.

CDK deploys the schedules; the embedded cloud runs the same ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from aws_cdk import Duration, Stack
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from catalog.core import s3_layout
from catalog.core.settings import variable_of
from infra.job_workers import maximum_capacity, spark_conf
from infra.stacks.compute import DELIVERY, ComputeStack
from infra.stacks.functions import LakeFunction, image_content
from infra.stacks.grants import READ_GLUE, grant_catalog, grant_job_runs, grant_objects
from infra.stacks.queues import dead_letters
from infra.stacks.storage import StorageStack
from infra.stage import ROOT, Stage
from spark_jobs.releases import EMR_ICEBERG_JAR, RELEASE_LABEL

INTERPRETER = "/opt/strandline/venv/bin/python"
"""The image's own Python, with the lake's packages (infra/images/jobs.Dockerfile)."""
JOB_BASE_TAG = f"public.ecr.aws/emr-serverless/spark/{RELEASE_LABEL}:latest"
"""The default of infra/images/jobs.Dockerfile."""
UNFINISHED = ("FAILED", "CANCELLED")


@dataclass(frozen=True)
class JobSchedule:
    """A schedule that starts a job. `cron` is EventBridge Scheduler's expression, in UTC.

    `also` distinguishes a second schedule of the same job.
    """

    job: str
    cron: str
    arguments: tuple[str, ...] = ()
    timeout_minutes: int = 120
    also: str = ""
    databases: tuple[str, ...] = ()
    """Those whose tables it reads; none: all. It is not started while they have not changed."""

    @property
    def name(self) -> str:
        return f"{self.job}-{self.also}" if self.also else self.job


SCHEDULES = (
    JobSchedule("medallion", "cron(7 * * * ? *)", databases=("bronze",)),
    JobSchedule("compact", "cron(30 2 * * ? *)", timeout_minutes=360),
    JobSchedule("expire", "cron(30 4 * * ? *)"),
    JobSchedule("vectors", "cron(0 5 * * ? *)"),
    JobSchedule("verify", "cron(0 6 * * ? *)"),
    JobSchedule("verify", "cron(30 6 ? * SUN *)", ("--deep",), timeout_minutes=720, also="deep"),
)


class JobsStack(Stack):
    def __init__(
        self, scope: Construct, id: str, *, stage: Stage, storage: StorageStack, compute: ComputeStack
    ) -> None:
        super().__init__(scope, id)
        self._stage, self._storage, self._compute = stage, storage, compute
        self.role = self._role()
        self.application = self._application()
        self._schedules()
        self._failures()

    def _application(self) -> emr.CfnApplication:
        """Has no pre-initialized capacity, and stops 15 minutes after the last job run.

        EMR Serverless pulls the image itself; the asset repository's policy, of `cdk bootstrap`, allows it.
        """
        image = ecr_assets.DockerImageAsset(
            self,
            "Image",
            directory=str(ROOT),
            file="infra/images/jobs.Dockerfile",
            build_args={"RELEASE": RELEASE_LABEL, **({"BASE": base} if (base := self._stage.job_base) else {})},
            exclude=image_content("spark_jobs"),
            platform=ecr_assets.Platform.LINUX_AMD64,
        )
        capacity = maximum_capacity(self._stage)
        logs = emr.CfnApplication.S3MonitoringConfigurationProperty(
            log_uri=self._storage.bucket.s3_url_for_object(f"{s3_layout.JOBS}logs/")
        )
        return emr.CfnApplication(
            self,
            "Application",
            name=self._stage.resource("jobs"),
            release_label=RELEASE_LABEL,
            type="SPARK",
            architecture="X86_64",
            auto_start_configuration=emr.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=15
            ),
            maximum_capacity=emr.CfnApplication.MaximumAllowedResourcesProperty(
                cpu=f"{capacity.vcpus} vCPU", memory=f"{capacity.memory_gb} GB"
            ),
            image_configuration=emr.CfnApplication.ImageConfigurationInputProperty(image_uri=image.image_uri),
            monitoring_configuration=emr.CfnApplication.MonitoringConfigurationProperty(
                s3_monitoring_configuration=logs
            ),
            runtime_configuration=[
                emr.CfnApplication.ConfigurationObjectProperty(
                    classification="spark-defaults", properties=self._spark_defaults()
                )
            ],
        )

    def _spark_defaults(self) -> dict[str, str]:
        """The properties of every job run: Iceberg, the lake's settings, sizes of workers."""
        # Without a VPC a job reaches S3, Glue, KMS, STS, Secrets Manager and a few more, but not SQS
        # (docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/vpc-access.html).
        settings = {
            **self._compute.settings(),
            variable_of("region"): self.region,
            variable_of("send_requests"): "s3",
            **dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), INTERPRETER),
        }
        variables = {
            f"spark.{scope}.{name}": value
            # EMR sets no region in a custom image, neither for the driver nor for its executors.
            for name, value in settings.items()
            for scope in ("emr-serverless.driverEnv", "executorEnv")
        }
        return {
            "spark.jars": EMR_ICEBERG_JAR,
            # Shuffle and spill go to EMR's serverless storage, not to worker disks.
            "spark.aws.serverlessStorage.enabled": "true",
            **spark_conf(self._stage),
            **variables,
        }

    def _role(self) -> iam.Role:
        """Job runs read and write tables, reports, and requests to the sequencer; they only read the timeline."""
        role = iam.Role(
            self,
            "JobRole",
            role_name=self._stage.resource("job"),
            assumed_by=iam.ServicePrincipal("emr-serverless.amazonaws.com"),
        )
        written = (
            s3_layout.TABLES,
            s3_layout.ATTESTATIONS,
            s3_layout.TRANSACTIONS,
            s3_layout.JOBS,
            s3_layout.VECTORS,
            s3_layout.QUERIES,
            s3_layout.MESSAGES,
        )
        grant_objects(
            role,
            self._storage.bucket,
            self._storage.key,
            # Jobs look up in the timeline whether a snapshot is sequenced.
            read=(*written, s3_layout.TIMELINE, s3_layout.TIMELINE_STORE),
            put=(*written, s3_layout.HISTORY),
            # Files that compaction replaced, unused versions of vector tables, rows of a cancelled query.
            delete=(s3_layout.TABLES, s3_layout.VECTORS, s3_layout.QUERIES),
        )
        grant_catalog(role, self, *READ_GLUE, "glue:CreateTable", "glue:UpdateTable", "glue:CreateDatabase")
        return role

    def _failures(self) -> None:
        """Sends every job run that did not end well to a dead-letter queue, which has an alarm.

        A run that EMR ended because its time was over is CANCELLED, like one that a person cancelled
        (docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/job-states.html).
        Uses EventBridge because the dimensions of EMR's CloudWatch metrics change between releases.
        """
        failed = dead_letters(self, "Failed", name=self._stage.resource("jobs-dead"))
        events.Rule(
            self,
            "Failures",
            rule_name=self._stage.resource("jobs-failed"),
            event_pattern=events.EventPattern(
                source=["aws.emr-serverless"],
                detail_type=["EMR Serverless Job Run State Change"],
                detail={"applicationId": [self.application.attr_application_id], "state": list(UNFINISHED)},
            ),
            targets=[targets.SqsQueue(failed)],
        )

    def _starter(self) -> LakeFunction:
        """Starts the jobs that are due and have something to do (catalog/core/job_starts.py)."""
        starter = LakeFunction(
            self,
            "Starter",
            stage=self._stage,
            name="starter",
            extra="timeline",  # the sequencer's image
            environment={
                **self._compute.settings(),
                variable_of("jobs_application"): self.application.attr_application_id,
                variable_of("jobs_role"): self.role.role_arn,
            },
            timeout=Duration.minutes(1),
            memory_mb=512,
            concurrency=None,
            key=self._storage.key,
            # A schedule invokes it asynchronously: an event that Lambda gave up is kept.
            dead_letters=self._compute.undelivered,
        )
        starts = f"{s3_layout.JOBS}starts/"
        grant_objects(starter.function, self._storage.bucket, self._storage.key, read=(starts,), put=(starts,))
        grant_catalog(starter.function, self, *READ_GLUE)
        grant_job_runs(starter.function, self.application.attr_arn, self.role.role_arn)
        return starter

    def _schedules(self) -> None:
        starter = self._starter().function
        schedule_role = iam.Role(self, "ScheduleRole", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"))
        schedule_role.add_to_policy(
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[starter.function_arn])
        )
        self._compute.undelivered.grant_send_messages(schedule_role)
        for schedule in SCHEDULES:
            due = {
                "schedule": schedule.name,
                "job": schedule.job,
                "arguments": schedule.arguments,
                "timeout_minutes": schedule.timeout_minutes,
                "databases": schedule.databases,
                "execution_id": "<aws.scheduler.execution-id>",
            }
            scheduler.CfnSchedule(
                self,
                f"{schedule.name.title().replace('-', '')}Schedule",
                name=self._stage.resource(f"job-{schedule.name}"),
                schedule_expression=schedule.cron,
                state="ENABLED" if self._stage.run_jobs else "DISABLED",
                flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
                target=scheduler.CfnSchedule.TargetProperty(
                    arn=starter.function_arn,
                    role_arn=schedule_role.role_arn,
                    input=json.dumps(due),
                    retry_policy=DELIVERY,
                    dead_letter_config=self._compute.dead_letter_config(),
                ),
            )
