"""`strandline doctor --deployed`: a lake is well after its first file, and each planted fault is found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.lake import Lake
from infra.doctor.deployed import deployed
from infra.doctor.finding import Finding
from infra.local.cloud import EmbeddedCloud
from infra.stage import load_stage
from tests.waiting import wait_until

STAGE = load_stage("dev")


def look(cloud: EmbeddedCloud) -> dict[str, Finding]:
    return {one.check: one for one in deployed(STAGE, cloud.endpoint.client)}


def wrong(cloud: EmbeddedCloud) -> set[str]:
    found = look(cloud)
    assert all(one.next for one in found.values() if not one.ok)
    return {name for name, one in found.items() if not one.ok}


@pytest.fixture
def well(cloud: EmbeddedCloud, lake: Lake) -> Iterator[EmbeddedCloud]:
    """A lake after its first file; as well afterwards as before."""
    body = b"station,metres\nBrest,4.2\n"
    lake.s3.put_object(Bucket=lake.settings.bucket, Key="landing/bronze/gauges/good.csv", Body=body)
    cloud.wait_until_idle()
    wait_until(lambda: not wrong(cloud), "the lake to be well")
    yield cloud
    assert wrong(cloud) == set()


def test_a_lake_without_a_file_has_no_checkpoint(cloud: EmbeddedCloud) -> None:
    found = look(cloud)
    assert {name for name, one in found.items() if not one.ok} == {"checkpoint"}
    assert "land a file" in found["checkpoint"].next


def test_a_bucket_that_announces_nothing(well: EmbeddedCloud, lake: Lake) -> None:
    s3, bucket = well.endpoint.client("s3"), lake.settings.bucket
    before = s3.get_bucket_notification_configuration(Bucket=bucket)
    before.pop("ResponseMetadata")
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    assert wrong(well) == {"events"}
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=before)


def test_a_queue_that_nobody_reads(well: EmbeddedCloud) -> None:
    client = well.endpoint.client("lambda")
    mappings = client.list_event_source_mappings(FunctionName="strandline-dev-sequencer")["EventSourceMappings"]
    client.update_event_source_mapping(UUID=mappings[0]["UUID"], Enabled=False)
    found = look(well)
    assert not found["mappings"].ok and "sequencer" in found["mappings"].seen
    client.update_event_source_mapping(UUID=mappings[0]["UUID"], Enabled=True)


def test_a_dead_letter_and_an_alarm(well: EmbeddedCloud) -> None:
    sqs, alarms = well.endpoint.client("sqs"), well.endpoint.client("cloudwatch")
    url = sqs.get_queue_url(QueueName="strandline-dev-landed-dead")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="given up")
    alarms.set_alarm_state(AlarmName="strandline-dev-LandedDead", StateValue="ALARM", StateReason="planted")
    found = look(well)
    assert wrong(well) == {"dead letters", "alarms"} and "LandedDead" in found["alarms"].seen
    sqs.purge_queue(QueueUrl=url)
    alarms.set_alarm_state(AlarmName="strandline-dev-LandedDead", StateValue="OK", StateReason="mended")


def test_a_function_that_is_gone_is_a_finding_of_its_own(well: EmbeddedCloud) -> None:
    other = STAGE.model_copy(update={"name": "other"})
    found = {one.check: one for one in deployed(other, well.endpoint.client)}
    assert not found["stacks"].ok and "not deployed" in found["stacks"].seen
    assert not found["functions"].ok and not found["bucket"].ok


def test_a_read_that_fails_is_named_with_its_table(well: EmbeddedCloud, lake: Lake) -> None:
    """One byte of a data file is another than was signed: nothing but a read notices."""
    bucket, s3 = lake.settings.bucket, lake.s3
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="tables/bronze")["Contents"]
    key = next(entry["Key"] for entry in listed if entry["Key"].endswith(".parquet"))
    good = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    s3.put_object(Bucket=bucket, Key=key, Body=good[:10] + bytes([good[10] ^ 1]) + good[11:])
    found = look(well)
    assert not found["reads"].ok and "query verified of bronze.gauges" in found["reads"].seen
    s3.put_object(Bucket=bucket, Key=key, Body=good)
