"""What runs: the functions, the queues that wake them, the schedules that make sure nothing is forgotten."""

from __future__ import annotations

import json

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from catalog import places
from catalog.settings import variable_of
from infra.stacks.functions import LakeFunction
from infra.stacks.grants import READ_GLUE, grant_catalog, grant_objects
from infra.stacks.queues import WorkQueue, dead_letters
from infra.stacks.storage import StorageStack
from infra.stage import Stage

# A schedule whose target refuses is tried again for so long, then what it would have said is kept.
DELIVERY = scheduler.CfnSchedule.RetryPolicyProperty(maximum_event_age_in_seconds=3600, maximum_retry_attempts=10)


class ComputeStack(Stack):
    def __init__(self, scope: Construct, id: str, *, stage: Stage, storage: StorageStack) -> None:
        super().__init__(scope, id)
        self._stage = stage
        self._storage = storage
        self.bus = events.EventBus(self, "Bus", event_bus_name=stage.resource("events"))
        self.bus.apply_removal_policy(RemovalPolicy.DESTROY)
        self.moved = WorkQueue(
            self, "Moved", name=stage.resource("moved"), consumer_timeout=Duration.minutes(1), receives=50
        )
        self.undelivered = dead_letters(self, "Undelivered", name=stage.resource("undelivered"))
        """What no schedule could deliver."""
        self._sequencer()
        self._ingest()
        self._sweep()

    def settings(self) -> dict[str, str]:
        """What every function is told; catalog.settings reads it back by the same names."""
        fields = {
            "stage": self._stage.name,
            "bucket": self._storage.bucket.bucket_name,
            "origin": self._stage.origin,
            "signer": f"secret:{self._storage.signing_key.secret_arn}",
            "moved_queue_url": self.moved.queue.queue_url,
            "landed_queue_url": self._storage.landed.queue.queue_url,
            "event_bus": self.bus.event_bus_name,
        }
        return {variable_of(field): value for field, value in fields.items()}

    def _sequencer(self) -> None:
        """The one writer of the timeline. Two would fence each other, so its concurrency is reserved at one."""
        sequencer = LakeFunction(
            self,
            "Sequencer",
            stage=self._stage,
            name="sequencer",
            extra="timeline",
            environment=self.settings(),
            timeout=Duration.minutes(1),
            memory_mb=1024,
            concurrency=1,
            key=self._storage.key,
        )
        sequencer.function.add_event_source(
            # No batching window: a window is a second at least, and a file is to be proven within two. What comes while
            # a batch is served goes together anyway; without a window Lambda takes ten at a time. Two batches at once
            # is the least that Lambda lets one ask for: the second is throttled, and comes again.
            sources.SqsEventSource(self.moved.queue, batch_size=10, max_concurrency=2, report_batch_item_failures=True)
        )
        timeline = (places.TIMELINE, places.TIMELINE_STORE)
        # After a sweep it ends the transactions of writers that are gone: a table that waits for one stands still.
        recovery = (places.TABLES, places.TRANSACTIONS)
        grant_objects(
            sequencer.function,
            self._storage.bucket,
            self._storage.key,
            read=(places.ATTESTATIONS, places.VECTORS, *timeline, *recovery),
            put=(places.ATTESTATIONS, *timeline, *recovery),
            # Compaction removes what it merged, and tiles that fuller ones replaced.
            delete=(*timeline, *recovery),
        )
        self.moved.queue.grant_send_messages(sequencer.function)
        # Not `grant_read`: that would name this role in the policy of the lake's key, in the stack below this one.
        sequencer.function.add_to_role_policy(
            iam.PolicyStatement(
                actions=["secretsmanager:GetSecretValue"], resources=[self._storage.signing_key.secret_arn]
            )
        )
        self.bus.grant_put_events_to(sequencer.function)
        grant_catalog(sequencer.function, self, *READ_GLUE, "glue:UpdateTable")

    def _ingest(self) -> None:
        """Landed files to rows. As many at once as there is work: the catalog's compare-and-swap keeps order."""
        ingest = LakeFunction(
            self,
            "Ingest",
            stage=self._stage,
            name="ingest",
            extra="ingest",
            environment=self.settings(),
            timeout=Duration.minutes(5),
            memory_mb=1024,
            concurrency=None,
            key=self._storage.key,
        )
        ingest.function.add_event_source(
            sources.SqsEventSource(
                self._storage.landed.queue,
                batch_size=10,
                max_concurrency=self._stage.ingest_concurrency,
                report_batch_item_failures=True,
            )
        )
        written = (places.TABLES, places.ATTESTATIONS, places.TRANSACTIONS)
        grant_objects(
            ingest.function,
            self._storage.bucket,
            self._storage.key,
            read=(places.LANDING, places.TABLES, places.TRANSACTIONS, places.RULES, places.INGESTED),
            versions=(places.LANDING,),  # the very bytes that the event is about
            # A writer that meets an undecided transaction ends it, and one that loses a race removes what it wrote.
            put=(*written, places.QUARANTINE, places.RULES, places.INGESTED, places.MEDIA),
            delete=(places.TABLES,),
        )
        self.moved.queue.grant_send_messages(ingest.function)
        grant_catalog(ingest.function, self, *READ_GLUE, "glue:CreateTable", "glue:UpdateTable")

    def _sweep(self) -> None:
        """Every table is caught up on a schedule, so that a lost message only costs time."""
        role = iam.Role(self, "SweepRole", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"))
        self.moved.queue.grant_send_messages(role)
        self.undelivered.grant_send_messages(role)
        scheduler.CfnSchedule(
            self,
            "Sweep",
            name=self._stage.resource("sweep"),
            schedule_expression=f"rate({self._stage.sweep_minutes} minute{'s' * (self._stage.sweep_minutes > 1)})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=self.moved.queue.queue_arn,
                role_arn=role.role_arn,
                input=json.dumps({"kind": "sweep"}),
                retry_policy=DELIVERY,
                dead_letter_config=self.dead_letter_config(),
            ),
        )

    def dead_letter_config(self) -> scheduler.CfnSchedule.DeadLetterConfigProperty:
        return scheduler.CfnSchedule.DeadLetterConfigProperty(arn=self.undelivered.queue_arn)
