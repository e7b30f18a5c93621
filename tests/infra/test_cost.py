"""The cost estimate: quantities follow the templates, and an idle lake costs next to nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catalog.core.prices import PRICES, load_prices
from infra.cost.estimate import Inventory, estimate, runs_a_month
from infra.cost.workload import IDLE, LARGE, MEDIUM, SMALL
from tests.infra.stages import templates


@pytest.fixture(scope="module")
def dev() -> Inventory:
    return Inventory.of(template.body for template in templates("dev"))


def dollars(inventory: Inventory, *sizes: Any) -> list[float]:
    return [sum(line.dollars for line in estimate(inventory, size)) for size in sizes]


def test_an_idle_dev_lake_costs_at_most_five_dollars_a_month(dev: Inventory) -> None:
    (idle,) = dollars(dev, IDLE)
    assert 0 < idle <= 5


def test_an_idle_prod_lake_costs_at_most_fifteen_dollars_a_month_and_starts_no_spark() -> None:
    lines = estimate(Inventory.of(template.body for template in templates("prod")), IDLE)
    assert sum(line.dollars for line in lines) <= 15
    assert not [line for line in lines if line.price.startswith("emr.")]


def test_more_work_costs_more(dev: Inventory) -> None:
    costs = dollars(dev, IDLE, SMALL, MEDIUM, LARGE)
    assert costs == sorted(costs)


def test_a_key_and_the_functions_figures_are_paid_for_where_they_are() -> None:
    def prices(stage: str, size: Any) -> set[str]:
        return {line.price for line in estimate(Inventory.of(one.body for one in templates(stage)), size)}

    assert "cloudwatch.metric_month" not in prices("dev", IDLE)
    assert "cloudwatch.metric_month" in prices("dev", SMALL)
    assert not {"kms.key_month", "kms.request"} & prices("dev", LARGE)
    assert {"kms.key_month", "kms.request", "cloudfront.request"} <= prices("prod", LARGE)


def test_the_inventory_is_what_the_templates_hold() -> None:
    def resource(type_: str, **properties: Any) -> dict[str, Any]:
        return {"Type": type_, "Properties": properties}

    def schedule(expression: str, target: str, **more: str) -> dict[str, Any]:
        return resource("AWS::Scheduler::Schedule", ScheduleExpression=expression, Target={"Arn": target}, **more)

    inventory = Inventory.of(
        [
            {
                "Resources": {
                    "A": resource(
                        "AWS::Lambda::Function", MemorySize=512, ImageConfig={"Command": ["functions.api.handler"]}
                    ),
                    "B": schedule("rate(5 minutes)", "arn:aws:sqs:::moved"),
                    "C": schedule("rate(1 day)", "arn:aws:lambda:::function:strandline-dev-starter"),
                    "H": resource(
                        "AWS::EMRServerless::Application",
                        RuntimeConfiguration=[
                            {
                                "Properties": {
                                    "spark.driver.cores": "4",
                                    "spark.driver.memory": "7g",
                                    "spark.executor.cores": "4",
                                    "spark.executor.memory": "14g",
                                }
                            }
                        ],
                    ),
                    "I": resource("AWS::SQS::Queue", FifoQueue=True, RedrivePolicy={}),
                    "J": resource("AWS::SQS::Queue", FifoQueue=True),
                    "D": schedule("rate(1 minute)", "arn:aws:sqs:::moved", State="DISABLED"),
                    "E": resource("AWS::KMS::Key"),
                    "F": resource("AWS::CloudWatch::Alarm"),
                }
            },
            {"Resources": {"G": resource("AWS::CloudWatch::Alarm")}},
        ]
    )
    assert inventory.memory_mb == {"api": 512}
    assert (inventory.sweeps_a_month, inventory.due_jobs_a_month) == (8640, 30)
    assert (inventory.run_vcpus, inventory.run_memory_gb, inventory.fifo_queues) == (8, 24, 1)
    assert (inventory.keys, inventory.alarms, inventory.secrets) == (1, 2, 0)


@pytest.mark.parametrize(
    ("expression", "runs"),
    [
        ("rate(1 minute)", 43_200),
        ("rate(2 hours)", 360),
        ("cron(30 * * * ? *)", 720),
        ("cron(0 2 * * ? *)", 30),
        ("cron(0 3 ? * SUN *)", 30 / 7),
        ("cron(0 4 1 * ? *)", 1),
    ],
)
def test_how_often_a_schedule_runs(expression: str, runs: float) -> None:
    assert runs_a_month(expression) == pytest.approx(runs)


def test_every_line_has_a_price_and_every_price_a_unit(dev: Inventory) -> None:
    listed = json.loads(PRICES.read_text())["prices"]
    assert {line.price for line in estimate(dev, LARGE)} <= load_prices().keys()
    assert all(entry["unit"] for entry in listed.values())
