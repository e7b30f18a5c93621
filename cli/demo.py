"""`strandline demo`: the main job end to end on the embedded cloud, each step real and each number measured here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from catalog import places
from catalog.changes import verify_feed
from catalog.errors import Internal, Unverified
from catalog.ingest.rules import Rule, Rules
from catalog.lake import Lake, open_lake
from catalog.merkle.note import VerifierKey
from catalog.merkle.proof import verify as verify_proof
from catalog.settings import load_settings
from cli.demo_notes import QUESTION, demo_notes
from cli.output import Output
from infra.local.cloud import EmbeddedCloud

TABLE = "bronze.tide_gauges"
NOTES_TABLE = "bronze.field_notes"
HIGHEST = f"SELECT station, metres FROM {TABLE} ORDER BY metres DESC LIMIT 3"  # noqa: S608
FILES = {
    "monday.jsonl": b'{"station": "Brest", "metres": 1.5}\n{"station": "Newlyn", "metres": 2.2}\n',
    "tuesday.csv": b"station,metres\nCuxhaven,2.9\nAberdeen,3.6\nReykjavik,4.3\n",
    "wednesday.jsonl": b'{"station": "Dover", "metres": 5.0}\n{"station": \n',
}


class Steps:
    """Numbers the steps, times them, and keeps what each one found for `--output json`."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.done: list[dict[str, Any]] = []

    @contextmanager
    def step(self, title: str) -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        began = time.perf_counter()
        with self._output.progress(title):
            yield found
        seconds = time.perf_counter() - began
        self.done.append({"step": title, "seconds": round(seconds, 3), **found})
        self._output.caption(f"[bold]{len(self.done)}. {title}[/]  [dim]{seconds:.2f} s[/]")
        for line in str(found.get("shown", "")).splitlines():
            self._output.caption(f"   {line}")


def run_demo(output: Output, *, keep: bool) -> None:
    steps = Steps(output)
    cloud = EmbeddedCloud()
    try:
        with steps.step("The lake starts: the CDK stacks, in memory, on loopback") as found:
            cloud.start()
            found["shown"] = "\n".join(f"{name}: {state}" for name, state in cloud.status()["stacks"].items())
        os.environ.update(cloud.environment("person"))
        _show(steps, cloud, open_lake(load_settings()))
        _close(output, steps, cloud, keep)
    finally:
        cloud.stop()


def _show(steps: Steps, cloud: EmbeddedCloud, lake: Lake) -> None:
    rules = Rules(lake.s3, lake.settings.bucket, lake.tables)
    with steps.step("Two files are dropped into the bucket, and a third that is broken") as found:
        rules.set(TABLE, Rule(key=("station",), mode="mor"))
        for name, body in FILES.items():
            lake.s3.put_object(Bucket=lake.settings.bucket, Key=f"{places.LANDING}bronze/tide_gauges/{name}", Body=body)
        cloud.wait_until_idle()
        found["rows"] = lake.tables.scan(TABLE).num_rows
        kept = lake.s3.list_objects_v2(Bucket=lake.settings.bucket, Prefix=places.QUARANTINE).get("Contents", [])
        found["quarantined"] = [item["Key"] for item in kept]
        found["shown"] = "\n".join([f"{TABLE} holds {found['rows']} rows; kept aside:", *found["quarantined"]])

    with steps.step("A reading is corrected: one upsert, sequenced like every commit") as found:
        lake.tables.upsert(TABLE, [{"station": "Brest", "metres": 6.9}])
        cloud.wait_until_idle()
        head = lake.timeline.head()
        found["size"] = head.checkpoint.size
        found["shown"] = head.note.decode().strip()

    with steps.step("Every commit is a leaf") as found:
        leaves = list(lake.timeline.commits_since(TABLE))
        found["leaves"] = [index for index, _ in leaves]
        found["shown"] = "\n".join(
            f"{index:>3}  {leaf.operation:<10} snapshot {leaf.snapshot_id}  {_time(leaf.sequenced_ms)}"
            for index, leaf in leaves
        )

    (key,) = {key for _, key in lake.timeline.source.keyring().keys}
    key = VerifierKey.parse(str(key))
    before, then = leaves[-2]
    _ask(steps, lake, before)

    with steps.step("What changed since then: a feed that proves it is complete, checked offline") as found:
        feed = list(lake.changes(TABLE, since=then.sequence))
        verify_feed(feed, [key], since=then.sequence, origin=lake.settings.origin)
        changed = [change for one in feed for change in one.changes.to_pylist()]
        found["changes"] = [{name: change[name] for name in ("op", "before", "after")} for change in changed]
        found["shown"] = "\n".join(f"{change['op']}  {change['before']} -> {change['after']}" for change in changed)

    _search(steps, cloud, lake, rules)

    with steps.step("A proof file, checked with nothing but the public key") as found:
        index = leaves[-1][0]
        entry, proof = lake.timeline.source.entry(index, head.checkpoint.size), lake.timeline.proof(index)
        verify_proof(proof, entry, [key], origin=lake.settings.origin)
        found["proof_bytes"] = len(proof)
        found["shown"] = f"key {key}\nleaf {index} is in the tree; the proof has {len(proof)} bytes"

    with steps.step("One byte of one data file is flipped, and the lake names the commit and the object") as found:
        flipped = _flip_one_byte(lake)
        try:
            lake.verifier.verify(deep=True).check()
        except Unverified as error:
            found["flipped"], found["named"] = flipped, error.message
            found["shown"] = f"flipped: {flipped}\nverify --deep: {error.message}"
        else:
            raise Internal(f"the flipped byte in {flipped} was not found")


def _ask(steps: Steps, lake: Lake, then: int) -> None:
    with steps.step("A question in SQL, and where it was answered") as found:
        answer = lake.queries.run(HIGHEST)
        found["rows"], found["route"] = answer.table().to_pylist(), str(answer.route)
        found["shown"] = "\n".join([HIGHEST, *map(_line, found["rows"]), f"route {answer.explanation.reason}"])

    with steps.step("The same question as of before the upsert") as found:
        answer = lake.queries.run(HIGHEST, as_of=then)
        found["rows"] = answer.table().to_pylist()
        said = f"by snapshot {answer.receipt.snapshots[TABLE]}, index {then} of the signed timeline"
        found["shown"] = "\n".join([*map(_line, found["rows"]), said])


def _search(steps: Steps, cloud: EmbeddedCloud, lake: Lake, rules: Rules) -> None:
    notes = demo_notes()
    with steps.step(f"{len(notes)} notes are dropped, embedded, and searched by meaning and by words") as found:
        rules.set(NOTES_TABLE, Rule(key=("path",), mode="mor"))
        for name, body in notes.items():
            key = f"{places.LANDING}{NOTES_TABLE.replace('.', '/')}/{name}"
            lake.s3.put_object(Bucket=lake.settings.bucket, Key=key, Body=body)
        cloud.wait_until_idle()
        vectors = lake.vectors.create(NOTES_TABLE, "body", columns=["title"])
        hits = lake.vectors.search(vectors.id, QUESTION, k=3).to_pylist()
        found["question"], found["hits"] = QUESTION, [hit["title"] for hit in hits]
        lines = [f"{hit['score']:.3f}  {hit['title']}" for hit in hits]
        found["shown"] = "\n".join([f'"{QUESTION}"', *lines])


def _line(row: dict[str, Any]) -> str:
    return "  ".join(str(value) for value in row.values())


def _flip_one_byte(lake: Lake) -> str:
    """What somebody with write access to the bucket could do, past every API of the lake."""
    task = next(iter(lake.tables.plan_scan(TABLE).plan_files()))
    path: str = task.file.file_path
    where = dict(zip(("Bucket", "Key"), path.removeprefix("s3://").split("/", 1), strict=True))
    data = bytearray(lake.s3.get_object(**where)["Body"].read())
    data[len(data) // 2] ^= 1
    lake.s3.put_object(**where, Body=bytes(data))
    return path


def _close(output: Output, steps: Steps, cloud: EmbeddedCloud, keep: bool) -> None:
    output.caption(
        "\nNext: [bold]strandline dev[/] keeps a lake up; docs/guide/first-ten-minutes.md shows what to type in it."
    )
    if output.is_json:
        output.data({"steps": steps.done})
    if keep:
        output.caption(f"Kept up. In another terminal: export STRANDLINE_DEV={cloud.endpoint.url}; Ctrl-C ends it.")
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            output.caption("stopping")


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
