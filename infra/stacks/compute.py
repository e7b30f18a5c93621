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
from infra.stacks.queues import WorkQueue
from infra.stacks.storage import StorageStack
from infra.stage import Stage

READ_GLUE = ("glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables")


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
        )
        sequencer.function.add_event_source(
            # No batching window: a window is a second at least, and a file is to be proven within two. What comes while
            # a batch is served goes together anyway; without a window Lambda takes ten at a time. Two batches at once
            # is the least that Lambda lets one ask for: the second is throttled, and comes again.
            sources.SqsEventSource(self.moved.queue, batch_size=10, max_concurrency=2, report_batch_item_failures=True)
        )
        bucket = self._storage.bucket
        read = (places.TABLES, places.ATTESTATIONS, places.TIMELINE, places.TIMELINE_STORE, places.VECTORS)
        for prefix in read:
            bucket.grant_read(sequencer.function, f"{prefix}*")
        for prefix in (places.ATTESTATIONS, places.TIMELINE, places.TIMELINE_STORE):
            bucket.grant_put(sequencer.function, f"{prefix}*")
        # Compaction removes what it merged, and tiles that fuller ones replaced.
        for prefix in (places.TIMELINE, places.TIMELINE_STORE):
            bucket.grant_delete(sequencer.function, f"{prefix}*")
        # After a sweep it ends the transactions of writers that are gone: a table that waits for one stands still.
        bucket.grant_read(sequencer.function, f"{places.TRANSACTIONS}*")
        for prefix in (places.TABLES, places.TRANSACTIONS):
            bucket.grant_put(sequencer.function, f"{prefix}*")
            bucket.grant_delete(sequencer.function, f"{prefix}*")
        self.moved.queue.grant_send_messages(sequencer.function)
        self._storage.signing_key.grant_read(sequencer.function)
        self.bus.grant_put_events_to(sequencer.function)
        sequencer.function.add_to_role_policy(self._glue(*READ_GLUE, "glue:UpdateTable"))

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
        )
        ingest.function.add_event_source(
            sources.SqsEventSource(self._storage.landed.queue, batch_size=10, report_batch_item_failures=True)
        )
        bucket = self._storage.bucket
        # A writer that meets an undecided transaction ends it, and one that loses a race removes what it wrote.
        for prefix in (places.LANDING, places.TABLES, places.TRANSACTIONS, places.RULES, places.INGESTED):
            bucket.grant_read(ingest.function, f"{prefix}*")
        for prefix in (places.TABLES, places.ATTESTATIONS, places.TRANSACTIONS, places.QUARANTINE):
            bucket.grant_put(ingest.function, f"{prefix}*")
        for prefix in (places.RULES, places.INGESTED, places.MEDIA):
            bucket.grant_put(ingest.function, f"{prefix}*")
        bucket.grant_delete(ingest.function, f"{places.TABLES}*")
        self.moved.queue.grant_send_messages(ingest.function)
        ingest.function.add_to_role_policy(self._glue(*READ_GLUE, "glue:CreateTable", "glue:UpdateTable"))

    def _glue(self, *actions: str) -> iam.PolicyStatement:
        def arn(resource: str) -> str:
            return self.format_arn(service="glue", resource=resource)

        return iam.PolicyStatement(actions=list(actions), resources=[arn("catalog"), arn("database/*"), arn("table/*")])

    def _sweep(self) -> None:
        """Every table is caught up on a schedule, so that a lost message only costs time."""
        role = iam.Role(self, "SweepRole", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"))
        self.moved.queue.grant_send_messages(role)
        scheduler.CfnSchedule(
            self,
            "Sweep",
            name=self._stage.resource("sweep"),
            schedule_expression=f"rate({self._stage.sweep_minutes} minute{'s' * (self._stage.sweep_minutes > 1)})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=self.moved.queue.queue_arn, role_arn=role.role_arn, input=json.dumps({"kind": "sweep"})
            ),
        )
