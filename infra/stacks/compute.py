"""The sequencer and ingest functions, their queues, the event bus, and the schedule of the sweep."""

from __future__ import annotations

import json

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from catalog.core import s3_layout
from catalog.core.sequencer_queue import GROUP
from catalog.core.settings import variable_of
from infra.stacks.functions import LakeFunction
from infra.stacks.grants import READ_GLUE, grant_catalog, grant_objects
from infra.stacks.queues import WorkQueue, dead_letters
from infra.stacks.storage import StorageStack
from infra.stage import Stage

# EventBridge Scheduler retries a failed delivery this often, then sends it to the dead-letter queue.
DELIVERY = scheduler.CfnSchedule.RetryPolicyProperty(maximum_event_age_in_seconds=3600, maximum_retry_attempts=10)


ERASE_TIMEOUT = Duration.minutes(15)


class ComputeStack(Stack):
    def __init__(self, scope: Construct, id: str, *, stage: Stage, storage: StorageStack) -> None:
        super().__init__(scope, id)
        self._stage = stage
        self._storage = storage
        self.bus = events.EventBus(self, "Bus", event_bus_name=stage.resource("events"))
        self.bus.apply_removal_policy(RemovalPolicy.DESTROY)
        self.moved = WorkQueue(
            # A message comes again at most every 30 seconds (functions/sequencer.py): a thousand receives are 8 hours.
            self,
            "Moved",
            name=stage.resource("moved"),
            consumer_timeout=Duration.minutes(1),
            receives=1000,
            fifo=True,
        )
        self.undelivered = dead_letters(self, "Undelivered", name=stage.resource("undelivered"))
        """The schedules' dead-letter queue."""
        self.erasures: WorkQueue | None = None
        if stage.erase_requests:
            self.erasures = WorkQueue(
                # One message group: one request at a time.
                self,
                "Erasures",
                name=stage.resource("erasures"),
                consumer_timeout=ERASE_TIMEOUT,
                receives=10,
                fifo=True,
            )
        self._sequencer()
        self._ingest()
        if self.erasures is not None:
            self._erase(self.erasures)
        self._sweep()

    def settings(self) -> dict[str, str]:
        """The environment variables of every function; catalog.core.settings reads them."""
        fields = {
            "stage": self._stage.name,
            "bucket": self._storage.bucket.bucket_name,
            "origin": self._stage.origin,
            "signer": self._storage.signer.setting,
            "moved_queue_url": self.moved.queue.queue_url,
            "landed_queue_url": self._storage.landed.queue.queue_url,
            **({"erase_queue_url": self.erasures.queue.queue_url} if self.erasures else {}),
            "event_bus": self.bus.event_bus_name,
        }
        return {variable_of(field): value for field, value in fields.items()}

    def _sequencer(self) -> None:
        """The only writer of the timeline. Two would fence each other, so its queue has one message group.

        Lambda has one batch of a message group in flight at a time. A reserved concurrency of one would do the same,
        but a new account has ten concurrent executions, none of which may be reserved
        (docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html, services-sqs-scaling.html).
        It is in no VPC, so it reaches the witnesses of the stage over the internet without a NAT gateway.
        """
        policy = self._stage.witness_policy()
        sequencer = LakeFunction(
            self,
            "Sequencer",
            stage=self._stage,
            name="sequencer",
            extra="timeline",
            environment={
                **self.settings(),
                variable_of("moved_dead_queue_url"): self.moved.dead_letters.queue_url,
                **({variable_of("witnesses"): policy} if policy else {}),
            },
            timeout=Duration.minutes(1),
            memory_mb=1024,
            concurrency=None,
            key=self._storage.key,
        )
        sequencer.function.add_event_source(
            # Messages that arrive during an invocation form the next batch. A FIFO queue has no batch window, and ten
            # messages in a batch at most.
            sources.SqsEventSource(self.moved.queue, batch_size=10, report_batch_item_failures=True)
        )
        timeline = (s3_layout.TIMELINE, s3_layout.TIMELINE_STORE)
        # After a sweep it completes or aborts transactions whose writer died: until then their tables cannot commit.
        recovery = (s3_layout.TABLES, s3_layout.TRANSACTIONS)
        grant_objects(
            sequencer.function,
            self._storage.bucket,
            self._storage.key,
            read=(s3_layout.ATTESTATIONS, s3_layout.ERASURES, s3_layout.VECTORS, *timeline, *recovery),
            put=(s3_layout.ATTESTATIONS, *timeline, *recovery),
            # SlateDB's compaction deletes what it merged; partial tiles are deleted once fuller ones exist.
            delete=(*timeline, *recovery),
        )
        for queue in (self.moved.queue, self.moved.dead_letters):
            queue.grant_send_messages(sequencer.function)
        # Not the key's `grant`: it would add this role to the key's policy, which is in the storage stack.
        signer = self._storage.signer
        sequencer.function.add_to_role_policy(iam.PolicyStatement(actions=list(signer.actions), resources=[signer.arn]))
        self.bus.grant_put_events_to(sequencer.function)
        grant_catalog(sequencer.function, self, *READ_GLUE, "glue:UpdateTable")

    def _ingest(self) -> None:
        """Turns landed files into rows. Invocations run concurrently: Glue's compare-and-swap orders their commits."""
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
        written = (s3_layout.TABLES, s3_layout.ATTESTATIONS, s3_layout.TRANSACTIONS)
        grant_objects(
            ingest.function,
            self._storage.bucket,
            self._storage.key,
            read=(
                s3_layout.LANDING,
                s3_layout.TABLES,
                s3_layout.TRANSACTIONS,
                s3_layout.RULES,
                s3_layout.INGESTED,
                s3_layout.MESSAGES,
            ),
            versions=(s3_layout.LANDING,),  # the object version that the event names
            # A writer that meets an undecided transaction completes or aborts it; one that loses the compare-and-swap
            # deletes the files that it wrote.
            put=(*written, s3_layout.QUARANTINE, s3_layout.RULES, s3_layout.INGESTED, s3_layout.MEDIA),
            delete=(s3_layout.TABLES,),
        )
        self.moved.queue.grant_send_messages(ingest.function)
        grant_catalog(ingest.function, self, *READ_GLUE, "glue:CreateTable", "glue:UpdateTable")

    def _erase(self, requests: WorkQueue) -> None:
        """Erases rows from the history of tables. The only function that may delete versions of objects."""
        erase = LakeFunction(
            self,
            "Erase",
            stage=self._stage,
            name="erase",
            extra="api",
            environment=self.settings(),
            timeout=ERASE_TIMEOUT,
            memory_mb=2048,
            concurrency=None,
            key=self._storage.key,
        )
        erase.function.add_event_source(
            sources.SqsEventSource(requests.queue, batch_size=1, report_batch_item_failures=True)
        )
        copies = (s3_layout.LANDING, s3_layout.QUARANTINE, s3_layout.INGESTED, s3_layout.VECTORS)
        written = (
            s3_layout.TABLES,
            s3_layout.ATTESTATIONS,
            s3_layout.TRANSACTIONS,
            s3_layout.ERASURES,
            s3_layout.ERASE_REQUESTS,
        )
        grant_objects(
            erase.function,
            self._storage.bucket,
            self._storage.key,
            read=(*written, s3_layout.TIMELINE, s3_layout.TIMELINE_STORE, *copies),
            versions=(s3_layout.LANDING, s3_layout.QUARANTINE),
            put=written,
            delete=(s3_layout.TABLES,),
            purge=(s3_layout.TABLES, s3_layout.ERASURES, s3_layout.RESULTS, *copies),
        )
        self.moved.queue.grant_send_messages(erase.function)
        grant_catalog(erase.function, self, *READ_GLUE, "glue:UpdateTable")

    def _sweep(self) -> None:
        """Makes the sequencer sweep every table on a schedule, so that a lost message only delays its leaf.

        Once in `sweep_minutes`: EventBridge Scheduler runs once a minute at most, and SQS refuses a delay for a single
        message of a FIFO queue. The execution id makes each message another one for the queue's deduplication, and a
        repeated delivery the same one.
        """
        role = iam.Role(self, "SweepRole", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"))
        self.moved.queue.grant_send_messages(role)
        self.undelivered.grant_send_messages(role)
        minutes = self._stage.sweep_minutes
        scheduler.CfnSchedule(
            self,
            "Sweep",
            name=self._stage.resource("sweep"),
            schedule_expression=f"rate({minutes} minute{'s' * (minutes > 1)})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=self.moved.queue.queue_arn,
                role_arn=role.role_arn,
                input=json.dumps({"kind": "sweep", "correlation_id": "<aws.scheduler.execution-id>"}),
                sqs_parameters=scheduler.CfnSchedule.SqsParametersProperty(message_group_id=GROUP),
                retry_policy=DELIVERY,
                dead_letter_config=self.dead_letter_config(),
            ),
        )

    def dead_letter_config(self) -> scheduler.CfnSchedule.DeadLetterConfigProperty:
        return scheduler.CfnSchedule.DeadLetterConfigProperty(arn=self.undelivered.queue_arn)
