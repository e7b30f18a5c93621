"""What the demo shows, step by step. Each is the lake's own code at work; nothing here knows how it is printed."""

from __future__ import annotations

import time
import uuid
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Protocol

from catalog import places
from catalog.changes import verify_feed
from catalog.errors import Internal, Unverified
from catalog.ingest.rules import Rule, Rules
from catalog.lake import Lake
from catalog.merkle.note import VerifierKey
from catalog.merkle.proof import verify as verify_proof
from cli.demo_notes import QUESTION, demo_events, demo_notes
from cli.job import CODE, ENDED, Jobs
from infra.local.cloud import EmbeddedCloud

GAUGES, NOTES, EVENTS = "bronze.tide_gauges", "bronze.raw_notes", "bronze.raw_imports"
POLL_SECONDS = 0.3
LAYERS = ("bronze", "silver", "gold")
HIGHEST = f"SELECT station, metres FROM {GAUGES} ORDER BY metres DESC LIMIT 3"  # noqa: S608
MOST_LINKED = """SELECT n.title, m.links_in, m.views FROM gold.note_metrics m
JOIN silver.processed_notes n ON n.note_id = m.note_id ORDER BY m.links_in DESC, n.title LIMIT 4"""
FILES = {
    "monday.jsonl": b'{"station": "Brest", "metres": 1.5}\n{"station": "Newlyn", "metres": 2.2}\n',
    "tuesday.csv": b"station,metres\nCuxhaven,2.9\nAberdeen,3.6\nReykjavik,4.3\n",
    "wednesday.jsonl": b'{"station": "Dover", "metres": 5.0}\n{"station": \n',
}
RULES = {
    GAUGES: Rule(key=("station",), mode="mor"),
    NOTES: Rule(key=("path",), mode="mor"),
    EVENTS: Rule(
        columns=dict.fromkeys(("event_id", "user_id", "action", "note_id"), "string")
        | {"at": "timestamptz", "detail": "string"},
        key=("event_id",),
        mode="mor",
    ),
}


class Shown(Protocol):
    """What steps are told to: `step` times one, `tell` says how far it is."""

    @property
    def tell(self) -> Any: ...

    def step(self, title: str) -> AbstractContextManager[dict[str, Any]]: ...


class Demo:
    """One run, from dropped files to the flipped byte."""

    def __init__(self, steps: Shown, cloud: EmbeddedCloud, lake: Lake) -> None:
        self._steps, self._cloud, self._lake = steps, cloud, lake

    def run(self) -> None:
        """Spark starts as soon as there is something to work on, and works while the next steps are shown."""
        self._drop()
        job = self._start_job()
        self._correct()
        self._ask_then_and_now()
        self._changes()
        self._await_job(job)
        self._ask_gold()
        self._search()
        self._prove()
        self._flip()

    def _drop(self) -> None:
        lake, bucket = self._lake, self._lake.settings.bucket
        notes = demo_notes()
        events = demo_events(list(notes))
        dropped = {(GAUGES, name): body for name, body in FILES.items()}
        dropped |= {(NOTES, name): body for name, body in notes.items()}
        dropped |= {(EVENTS, name): body for name, body in events.items()}
        title = f"{len(notes)} notes and {len(events) + len(FILES)} files of CSV and JSON are dropped into the bucket"
        with self._steps.step(title) as found:
            rules = Rules(lake.s3, bucket, lake.tables)
            for table, rule in RULES.items():
                rules.set(table, rule)
            for number, ((table, name), body) in enumerate(dropped.items(), 1):
                self._steps.tell(f"{number} of {len(dropped)}")
                lake.s3.put_object(Bucket=bucket, Key=f"{places.LANDING}{table.replace('.', '/')}/{name}", Body=body)
            self._steps.tell("S3 tells SQS, SQS the function that ingests them …")
            self._cloud.wait_until_idle(300)
            found["rows"] = {table: lake.tables.describe(table).rows for table in RULES}
            kept = lake.s3.list_objects_v2(Bucket=bucket, Prefix=places.QUARANTINE).get("Contents", [])
            found["quarantined"] = [item["Key"] for item in kept if not item["Key"].endswith(".json")]
            lines = [f"{table} has {rows} rows" for table, rows in found["rows"].items()]
            found["shown"] = "\n".join([*lines, "one file was broken; nothing of it went in, it is kept aside:"])
            found["shown"] += "".join(f"\n  {key}" for key in found["quarantined"])

    def _start_job(self) -> str:
        with self._steps.step("Spark is asked to make silver and gold of it: StartJobRun on EMR Serverless") as found:
            run_id = uuid.uuid4().hex
            started: str = self._jobs.emr.start_job_run(
                applicationId=self._jobs.application,
                clientToken=run_id,
                executionRoleArn=self._jobs.role,
                name="medallion",
                executionTimeoutMinutes=30,
                jobDriver={
                    "sparkSubmit": {"entryPoint": f"{CODE}/medallion.py", "entryPointArguments": ["--run-id", run_id]}
                },
            )["jobRunId"]
            found["run"] = started
            found["shown"] = f"run {started}; it works while we go on"
        return started

    def _correct(self) -> None:
        lake = self._lake
        with self._steps.step("A reading is corrected: one upsert, and every commit is a leaf") as found:
            lake.tables.upsert(GAUGES, [{"station": "Brest", "metres": 6.9}])
            self._cloud.wait_until_idle(300)
            found["size"] = lake.timeline.head().checkpoint.size
            found["leaves"] = [index for index, _ in self._leaves]
            lines = [
                f"{index:>3}  {leaf.operation:<10} snapshot {leaf.snapshot_id}  {_time(leaf.sequenced_ms)}"
                for index, leaf in self._leaves
            ]
            found["shown"] = "\n".join([*lines, "the signed head:", *lake.timeline.head().note.decode().split()])

    def _ask_then_and_now(self) -> None:
        before, _ = self._leaves[-2]
        with self._steps.step("A question in SQL, and where it was answered") as found:
            answer = self._lake.queries.run(HIGHEST)
            found["rows"], found["route"] = answer.table().to_pylist(), str(answer.route)
            found["shown"] = "\n".join([HIGHEST, *map(_line, found["rows"]), f"route: {answer.explanation.reason}"])
        with self._steps.step("The same question as of before the upsert") as found:
            answer = self._lake.queries.run(HIGHEST, as_of=before)
            found["rows"] = answer.table().to_pylist()
            said = f"by snapshot {answer.receipt.snapshots[GAUGES]}, index {before} of the signed timeline"
            found["shown"] = "\n".join([*map(_line, found["rows"]), said])

    def _changes(self) -> None:
        _, then = self._leaves[-2]
        with self._steps.step("What changed since then: a feed that proves it is complete, checked offline") as found:
            feed = list(self._lake.changes(GAUGES, since=then.sequence))
            verify_feed(feed, [self._key], since=then.sequence, origin=self._lake.settings.origin)
            changed = [change for one in feed for change in one.changes.to_pylist()]
            found["changes"] = [{name: change[name] for name in ("op", "before", "after")} for change in changed]
            found["shown"] = "\n".join(f"{change['op']}  {change['before']} -> {change['after']}" for change in changed)

    def _await_job(self, run: str) -> None:
        with self._steps.step("Spark has made silver and gold, and its commits are leaves, too") as found:
            while (state := self._jobs.get(run))["state"] not in ENDED:
                self._steps.tell(f"the run is {state['state']} …")
                time.sleep(POLL_SECONDS)
            if state["state"] != "SUCCESS":
                raise Internal(f"the job ended as {state['state']}: {state.get('stateDetails', '')}")
            self._cloud.wait_until_idle(300)
            report = self._jobs.describe(state)["report"]
            found["job_seconds"] = round(sum(stage["seconds"] for stage in report["stages"]), 1)
            found["commits"] = len(report["commits"])
            found["tables"] = {
                layer: {
                    name: self._lake.tables.describe(name).rows
                    for name in self._lake.tables.list()
                    if name.startswith(f"{layer}.")
                }
                for layer in LAYERS
            }
            lines = [
                f"{layer:<6}  " + ", ".join(f"{name.partition('.')[2]} {rows}" for name, rows in tables.items())
                for layer, tables in found["tables"].items()
            ]
            size = self._lake.timeline.head().checkpoint.size
            found["shown"] = "\n".join([*lines, f"{found['commits']} commits by Spark; the timeline has {size} leaves"])

    def _ask_gold(self) -> None:
        with self._steps.step("Gold and silver joined in one question, at one index of the timeline") as found:
            answer = self._lake.queries.run(MOST_LINKED)
            found["rows"], found["route"] = answer.table().to_pylist(), str(answer.route)
            found["index"] = answer.receipt.index
            said = f"route: {answer.explanation.reason}; index {answer.receipt.index}"
            found["shown"] = "\n".join([*MOST_LINKED.splitlines(), *map(_line, found["rows"]), said])

    def _search(self) -> None:
        with self._steps.step("The notes are embedded, and searched by meaning and by words at once") as found:
            self._steps.tell("embedding …")
            vectors = self._lake.vectors.create(NOTES, "body", columns=["title", "path"])
            hits = self._lake.vectors.search(vectors.id, QUESTION, k=3).to_pylist()
            found["question"], found["hits"] = QUESTION, [hit["title"] for hit in hits]
            lines = [f"{hit['score']:.3f}  {hit['title']}  ({hit['path']})" for hit in hits]
            found["shown"] = "\n".join([f'"{QUESTION}"', *lines])

    def _prove(self) -> None:
        lake = self._lake
        with self._steps.step("A proof file, checked with nothing but the public key") as found:
            index, size = self._leaves[-1][0], lake.timeline.head().checkpoint.size
            entry, proof = lake.timeline.source.entry(index, size), lake.timeline.proof(index)
            verify_proof(proof, entry, [self._key], origin=lake.settings.origin)
            found["proof_bytes"], found["size"] = len(proof), size
            found["shown"] = f"key {self._key}\nleaf {index} is in the tree of {size}; the proof has {len(proof)} bytes"

    def _flip(self) -> None:
        title = "One byte of one data file is flipped, and the lake names the commit and the object"
        with self._steps.step(title) as found:
            flipped = self._flip_one_byte()
            self._steps.tell("every object of every table is hashed …")
            try:
                self._lake.verifier.verify(deep=True).check()
            except Unverified as error:
                found["flipped"], found["named"] = flipped, error.message
                found["shown"] = f"flipped: {flipped}\nverify --deep: {error.message}"
            else:
                raise Internal(f"the flipped byte in {flipped} was not found")

    def _flip_one_byte(self) -> str:
        """What somebody with write access to the bucket could do, past every API of the lake."""
        task = next(iter(self._lake.tables.plan_scan(GAUGES).plan_files()))
        path: str = task.file.file_path
        where = dict(zip(("Bucket", "Key"), path.removeprefix("s3://").split("/", 1), strict=True))
        data = bytearray(self._lake.s3.get_object(**where)["Body"].read())
        data[len(data) // 2] ^= 1
        self._lake.s3.put_object(**where, Body=bytes(data))
        return path

    @cached_property
    def _jobs(self) -> Jobs:
        return Jobs(self._lake)

    @property
    def _leaves(self) -> list[tuple[int, Any]]:
        return list(self._lake.timeline.commits_since(GAUGES))

    @cached_property
    def _key(self) -> VerifierKey:
        """The only thing of the lake that the checks below use."""
        (key,) = {str(key) for _, key in self._lake.timeline.source.keyring().keys}
        return VerifierKey.parse(key)


def _line(row: dict[str, Any]) -> str:
    return "  ".join(str(value) for value in row.values())


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
