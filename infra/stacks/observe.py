"""Alarms for what an operator must act on, a dashboard, and a budget.

Alarms refer to functions and queues by the names of `Stage.resource`; a test checks that the other stacks create them.
"""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from catalog.core import metrics
from infra.stacks.encryption import PUBLISHERS
from infra.stacks.replica import REPLICATION_RULE, bucket_name
from infra.stage import Stage

FUNCTIONS = ("ingest", "sequencer", "api", "public", "starter", "canary")
# A burst is throttled for a moment, and retried; one that lasts needs a larger quota.
THROTTLES = 50
REPLICATION_LAG_S = 3600
QUEUES = {"landed": "", "moved": ".fifo"}
"""The work queues, and how their names end."""
FIVE_MINUTES = Duration.minutes(5)
# A message waits at most for the next batch; after ten minutes the function is not receiving any.
OLDEST_MESSAGE_S = 600
# Ten commits a second, for the five minutes that garbage is kept, make three thousand.
WAL_FILES = 10_000


def functions_of(stage: Stage) -> tuple[str, ...]:
    return (*FUNCTIONS, *(("erase",) if stage.erase_requests else ()))


def queues_of(stage: Stage) -> dict[str, str]:
    return QUEUES | ({"erasures": ".fifo"} if stage.erase_requests else {})


class ObserveStack(Stack):
    def __init__(
        self, scope: Construct, id: str, *, stage: Stage, api_id: str, key: kms.IKey | None, bucket: s3.IBucket
    ) -> None:
        super().__init__(scope, id)
        self._key, self._bucket = key, bucket
        self._stage, self._api_id = stage, api_id
        self.topic = self._topic()
        self._alarms: list[cloudwatch.Alarm] = []
        self._functions()
        self._queues()
        self._api()
        self._lake()
        if stage.replica_region:
            self._replication()
        self._dashboard()
        if stage.budget_dollars:
            self._bill(stage.budget_dollars)

    def _topic(self) -> sns.Topic:
        """The topic of all alarms. It has no subscription: the operator subscribes a mailbox or a pager."""
        topic = sns.Topic(
            self, "Alarms", topic_name=self._stage.resource("alarms"), enforce_ssl=True, master_key=self._key
        )
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                principals=[iam.ServicePrincipal(f"{service}.amazonaws.com") for service in PUBLISHERS],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        return topic

    def _functions(self) -> None:
        for name in functions_of(self._stage):
            self._alarm(
                f"{name.capitalize()}Errors",
                f"{name} raised an error that it did not answer for, or ran out of time",
                self._of_function(name, "Errors", "Sum"),
                threshold=1,
            )
            self._alarm(
                f"{name.capitalize()}Throttles",
                f"{name} was throttled: the account's concurrent executions are used up",
                self._of_function(name, "Throttles", "Sum"),
                threshold=THROTTLES,
            )

    def _queues(self) -> None:
        for name, suffix in queues_of(self._stage).items():
            queue, dead = self._stage.resource(name) + suffix, self._stage.resource(f"{name}-dead") + suffix
            self._alarm(
                f"{name.capitalize()}Age",
                f"messages wait in {queue}: its function does not keep up, or does not run",
                self._of_queue(queue, "ApproximateAgeOfOldestMessage", "Maximum"),
                threshold=OLDEST_MESSAGE_S,
            )
            self._alarm(
                f"{name.capitalize()}Dead",
                f"messages of {queue} were given up: see `strandline ingest redrive`, or the function's log",
                self._of_queue(dead, "ApproximateNumberOfMessagesVisible", "Maximum"),
                threshold=1,
            )

        failed = self._stage.resource("jobs-dead")
        self._alarm(
            "JobsFailed",
            f"job runs failed, were cancelled or ran out of time: {failed} says which, `strandline job show` and `job "
            "logs` why",
            self._of_queue(failed, "ApproximateNumberOfMessagesVisible", "Maximum"),
            threshold=1,
        )
        undelivered = self._stage.resource("undelivered")
        self._alarm(
            "Undelivered",
            f"a schedule could not reach its target: what it would have said is in {undelivered}",
            self._of_queue(undelivered, "ApproximateNumberOfMessagesVisible", "Maximum"),
            threshold=1,
        )

    def _lake(self) -> None:
        """Alarms on the functions' own metrics, which they log in embedded metric format (docs/guide/operate.md)."""
        self._alarm(
            "FilesFailed",
            "landed files could not be ingested, though nothing is wrong with them",
            self._of_lake("ingest", metrics.FILES_FAILED, "Sum"),
            threshold=1,
        )
        self._alarm(
            "SequencerLag",
            "commits were sequenced long after they were made (ms)",
            self._of_lake("sequencer", metrics.LAG, "Maximum"),
            # A commit whose message was lost waits for the next sweep.
            threshold=max(OLDEST_MESSAGE_S, 2 * 60 * self._stage.sweep_minutes) * 1000,
        )
        self._alarm(
            "Unsequenced",
            "two sweeps or more could not put every table's snapshots into the timeline",
            # Each sweep emits the metric once, so the period follows the sweep's interval.
            self._of_lake("sequencer", metrics.UNSEQUENCED, "SampleCount").with_(
                period=Duration.minutes(3 * max(5, self._stage.sweep_minutes))
            ),
            threshold=2,
        )
        self._alarm(
            "WalFiles",
            "the timeline's database is not compacted, or its garbage not collected",
            self._of_lake("sequencer", metrics.WAL_FILES, "Maximum"),
            threshold=WAL_FILES,
        )
        self._alarm(
            "ReadsFailed",
            "reads or proofs fail that callers rely on: `strandline doctor --deployed` or the canary's log says which",
            self._of_lake("canary", metrics.READS_FAILED, "Sum"),
            threshold=1,
        )
        self._alarm(
            "Unverified",
            "a proof did not hold: what is stored is not what was signed. Never ignore this one",
            self._of_lake("sequencer", metrics.UNVERIFIED, "Sum"),
            threshold=1,
        )

    def _replication(self) -> None:
        self._alarm(
            "ReplicationLag",
            f"objects wait to be replicated to {self._stage.replica_region} (seconds of the oldest)",
            self._metric(
                "AWS/S3",
                "ReplicationLatency",
                "Maximum",
                SourceBucket=self._bucket.bucket_name,
                DestinationBucket=bucket_name(self, self._stage),
                RuleId=REPLICATION_RULE,
            ),
            threshold=REPLICATION_LAG_S,
        )

    def _api(self) -> None:
        self._alarm("ApiFailures", "the API answered 5xx", self._of_api("5xx", "Sum"), threshold=5)
        self._alarm("ApiLatency", "the API is slow (p99, ms)", self._of_api("Latency", "p99"), threshold=10_000)

    def _dashboard(self) -> None:
        dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=self._stage.resource("lake"))
        dashboard.add_widgets(cloudwatch.AlarmStatusWidget(alarms=self._alarms, width=24, height=3, title="Alarms"))
        dashboard.add_widgets(
            self._graph(
                "Invocations", [self._of_function(name, "Invocations", "Sum") for name in functions_of(self._stage)]
            ),
            self._graph(
                "Duration, p99", [self._of_function(name, "Duration", "p99") for name in functions_of(self._stage)]
            ),
            self._graph("Errors", [self._of_function(name, "Errors", "Sum") for name in functions_of(self._stage)]),
        )
        dashboard.add_widgets(
            self._graph(
                "Oldest message",
                [
                    self._of_queue(self._stage.resource(name) + suffix, "ApproximateAgeOfOldestMessage", "Maximum")
                    for name, suffix in queues_of(self._stage).items()
                ],
            ),
            self._graph(
                "API requests", [self._of_api("Count", "Sum"), self._of_api("4xx", "Sum"), self._of_api("5xx", "Sum")]
            ),
            self._graph("API latency", [self._of_api("Latency", "p50"), self._of_api("Latency", "p99")]),
        )
        outcomes = ("FilesCommitted", "FilesQuarantined", metrics.FILES_FAILED)
        dashboard.add_widgets(
            self._graph("Files", [self._of_lake("ingest", name, "Sum") for name in outcomes]),
            self._graph("Leaves", [self._of_lake("sequencer", metrics.LEAVES, "Sum")]),
            self._graph("From commit to leaf, ms", [self._of_lake("sequencer", metrics.LAG, "Maximum")]),
        )

    def _bill(self, dollars: int) -> None:
        """A budget for what has the stage's tags, published to the topic at 80% and when it is forecast to be exceeded.

        Not a cost anomaly monitor: an account has one of the kind that watches services, and a new account's is AWS's
        own (docs.aws.amazon.com/cost-management/latest/userguide/getting-started-ad.html).
        """
        subscriber = budgets.CfnBudget.SubscriberProperty(subscription_type="SNS", address=self.topic.topic_arn)
        limits = {"ACTUAL": 80, "FORECASTED": 100}
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=self._stage.resource("budget"),
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=dollars, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:stage${self._stage.name}"]},
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        comparison_operator="GREATER_THAN",
                        notification_type=kind,
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[subscriber],
                )
                for kind, percent in limits.items()
            ],
        )

    def _alarm(self, id: str, description: str, metric: cloudwatch.Metric, *, threshold: float) -> None:
        alarm = metric.create_alarm(
            self,
            id,
            alarm_name=self._stage.resource(id),
            alarm_description=description,
            threshold=threshold,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            # An idle lake emits no metrics.
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        self._alarms.append(alarm)

    def _graph(self, title: str, metrics: list[cloudwatch.Metric]) -> cloudwatch.GraphWidget:
        return cloudwatch.GraphWidget(title=title, left=metrics, width=8)

    def _of_function(self, name: str, metric: str, statistic: str) -> cloudwatch.Metric:
        return self._metric("AWS/Lambda", metric, statistic, FunctionName=self._stage.resource(name))

    def _of_queue(self, queue: str, metric: str, statistic: str) -> cloudwatch.Metric:
        return self._metric("AWS/SQS", metric, statistic, QueueName=queue)

    def _of_api(self, metric: str, statistic: str) -> cloudwatch.Metric:
        return self._metric("AWS/ApiGateway", metric, statistic, ApiId=self._api_id)

    def _of_lake(self, service: str, metric: str, statistic: str) -> cloudwatch.Metric:
        return self._metric(metrics.NAMESPACE, metric, statistic, service=service, stage=self._stage.name)

    @staticmethod
    def _metric(namespace: str, name: str, statistic: str, **dimensions: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=name,
            statistic=statistic,
            dimensions_map=dimensions,
            period=FIVE_MINUTES,
        )
