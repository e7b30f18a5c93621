"""The steps of the demo. Each calls the lake's own code and records facts; `cli.demo` prints them."""

from __future__ import annotations

import time
import uuid
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Protocol

from catalog import Internal, Lake, Unverified
from catalog.changes import verify_feed
from catalog.core import s3_layout
from catalog.core.point_in_time import TableSequence
from catalog.ingest import Rule, RuleStore
from catalog.merkle.note import VerifierKey
from catalog.merkle.proof import verify as verify_proof
from cli.demo_notes import QUESTION, demo_events, demo_notes
from cli.job import FINAL_STATES, Jobs
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


class Recorder(Protocol):
    """`step` times one step and yields the dict for its facts; `progress` shows how far the step is."""

    @property
    def progress(self) -> Any: ...

    def step(self, title: str) -> AbstractContextManager[dict[str, Any]]: ...


class Demo:
    """One run of the demo, from dropped files to the flipped byte."""

    def __init__(self, steps: Recorder, cloud: EmbeddedCloud, lake: Lake) -> None:
        self._steps, self._cloud, self._lake = steps, cloud, lake

    def run(self) -> None:
        """Runs all steps. The Spark job starts as soon as there are rows, and runs during the next steps."""
        self._drop_files()
        job = self._start_job()
        self._correct_reading()
        self._query_now_and_as_of()
        self._verify_changes()
        self._await_job(job)
        self._query_gold()
        self._search()
        self._prove()
        self._detect_flipped_byte()

    def _drop_files(self) -> None:
        lake, bucket = self._lake, self._lake.settings.bucket
        notes = demo_notes()
        events = demo_events(list(notes))
        files = {(GAUGES, name): body for name, body in FILES.items()}
        files |= {(NOTES, name): body for name, body in notes.items()}
        files |= {(EVENTS, name): body for name, body in events.items()}
        title = f"{len(notes)} notes and {len(events) + len(FILES)} CSV and JSON files are put into the bucket"
        with self._steps.step(title) as facts:
            rules = RuleStore(lake.s3, bucket, lake.tables)
            for table, rule in RULES.items():
                rules.set(table, rule)
            for number, ((table, name), body) in enumerate(files.items(), 1):
                self._steps.progress(f"{number} of {len(files)}")
                lake.s3.put_object(Bucket=bucket, Key=f"{s3_layout.LANDING}{table.replace('.', '/')}/{name}", Body=body)
            self._steps.progress("S3 notifies SQS, and SQS triggers the ingest function …")
            self._cloud.wait_until_idle(300)
            facts["rows"] = {table: lake.tables.describe(table).rows for table in RULES}
            quarantined = lake.s3.list_objects_v2(Bucket=bucket, Prefix=s3_layout.QUARANTINE).get("Contents", [])
            facts["quarantined"] = [item["Key"] for item in quarantined if not item["Key"].endswith(".json")]
            lines = [f"{table} has {rows} rows" for table, rows in facts["rows"].items()]
            lines.append("one file was broken: none of its rows was ingested, and it is in quarantine:")
            facts["shown"] = "\n".join([*lines, *(f"  {key}" for key in facts["quarantined"])])

    def _start_job(self) -> str:
        with self._steps.step("A Spark job starts: StartJobRun on EMR Serverless, to derive silver and gold") as facts:
            run = self._jobs.start("medallion", uuid.uuid4().hex, timeout_minutes=30)
            facts["run"] = run
            facts["shown"] = f"run {run}; it runs during the next steps"
        return run

    def _correct_reading(self) -> None:
        lake = self._lake
        with self._steps.step("One upsert corrects a reading; every commit is a leaf of the timeline") as facts:
            lake.tables.upsert(GAUGES, [{"station": "Brest", "metres": 6.9}])
            self._cloud.wait_until_idle(300)
            facts["size"] = lake.timeline.head().checkpoint.size
            facts["leaves"] = [index for index, _ in self._leaves]
            lines = [
                f"{index:>3}  {leaf.operation:<10} snapshot {leaf.snapshot_id}  {_time(leaf.sequenced_ms)}"
                for index, leaf in self._leaves
            ]
            note = lake.timeline.head().note.decode()
            facts["shown"] = "\n".join([*lines, "the signed checkpoint:", *note.splitlines()])

    def _query_now_and_as_of(self) -> None:
        before, _ = self._leaves[-2]
        with self._steps.step("A SQL query, and where it ran") as facts:
            answer = self._lake.queries.run(HIGHEST)
            facts["rows"], facts["route"] = answer.table().to_pylist(), str(answer.route)
            facts["shown"] = "\n".join([HIGHEST, *map(_line, facts["rows"]), f"route: {answer.explanation.reason}"])
        with self._steps.step("The same query as of before the upsert") as facts:
            answer = self._lake.queries.run(HIGHEST, as_of=before)
            facts["rows"] = answer.table().to_pylist()
            source = f"from snapshot {answer.receipt.snapshots[GAUGES]}, index {before} of the signed timeline"
            facts["shown"] = "\n".join([*map(_line, facts["rows"]), source])

    def _verify_changes(self) -> None:
        _, leaf = self._leaves[-2]
        with self._steps.step("The changes since then, with a proof that none is missing, checked offline") as facts:
            feed = list(self._lake.changes(GAUGES, since=TableSequence(leaf.sequence)))
            verify_feed(feed, [self._key], table=GAUGES, since=leaf.sequence, origin=self._lake.settings.origin)
            changed = [change for change_set in feed for change in change_set.changes.to_pylist()]
            facts["changes"] = [{name: change[name] for name in ("op", "before", "after")} for change in changed]
            facts["shown"] = "\n".join(f"{change['op']}  {change['before']} -> {change['after']}" for change in changed)

    def _await_job(self, run: str) -> None:
        with self._steps.step("The Spark job has derived silver and gold; its commits are leaves too") as facts:
            while (state := self._jobs.get(run))["state"] not in FINAL_STATES:
                self._steps.progress(f"the run is {state['state']} …")
                time.sleep(POLL_SECONDS)
            if state["state"] != "SUCCESS":
                raise Internal(f"the job ended as {state['state']}: {state.get('stateDetails', '')}")
            self._cloud.wait_until_idle(300)
            report = self._jobs.describe(state)["report"]
            facts["job_seconds"] = round(sum(stage["seconds"] for stage in report["stages"]), 1)
            facts["commits"] = len(report["commits"])
            facts["tables"] = {
                layer: {
                    name: self._lake.tables.describe(name).rows
                    for name in self._lake.tables.list()
                    if name.startswith(f"{layer}.")
                }
                for layer in LAYERS
            }
            lines = [
                f"{layer:<6}  " + ", ".join(f"{name.partition('.')[2]} {rows}" for name, rows in tables.items())
                for layer, tables in facts["tables"].items()
            ]
            size = self._lake.timeline.head().checkpoint.size
            facts["shown"] = "\n".join([*lines, f"{facts['commits']} commits by Spark; the timeline has {size} leaves"])

    def _query_gold(self) -> None:
        with self._steps.step("Gold and silver joined in one query, at one index of the timeline") as facts:
            answer = self._lake.queries.run(MOST_LINKED)
            facts["rows"], facts["route"] = answer.table().to_pylist(), str(answer.route)
            facts["index"] = answer.receipt.index
            source = f"route: {answer.explanation.reason}; index {answer.receipt.index}"
            facts["shown"] = "\n".join([*MOST_LINKED.splitlines(), *map(_line, facts["rows"]), source])

    def _search(self) -> None:
        with self._steps.step("Embeddings of the notes, and a search by meaning and by words") as facts:
            self._steps.progress("embedding …")
            vectors = self._lake.vectors.create(NOTES, "body", columns=["title", "path"])
            hits = self._lake.vectors.search(vectors.id, QUESTION, k=3).to_pylist()
            facts["question"], facts["hits"] = QUESTION, [hit["title"] for hit in hits]
            lines = [f"{hit['score']:.3f}  {hit['title']}  ({hit['path']})" for hit in hits]
            facts["shown"] = "\n".join([f'"{QUESTION}"', *lines])

    def _prove(self) -> None:
        lake = self._lake
        with self._steps.step("A proof file, checked with nothing but the public key") as facts:
            index, size = self._leaves[-1][0], lake.timeline.head().checkpoint.size
            entry, proof = lake.timeline.source.entry(index, size), lake.timeline.proof(index)
            verify_proof(proof, entry, [self._key], origin=lake.settings.origin)
            facts["proof_bytes"], facts["size"] = len(proof), size
            facts["shown"] = f"key {self._key}\nleaf {index} is in the tree of {size}; the proof has {len(proof)} bytes"

    def _detect_flipped_byte(self) -> None:
        title = "One byte of one data file is flipped, and the lake names the commit and the object"
        with self._steps.step(title) as facts:
            flipped = self._flip_one_byte()
            self._steps.progress("hashing every object of every table …")
            try:
                self._lake.verifier.verify(deep=True).check()
            except Unverified as error:
                facts["flipped"], facts["named"] = flipped, error.message
                facts["shown"] = f"flipped: {flipped}\nverify --deep: {error.message}"
            else:
                raise Internal(f"the flipped byte in {flipped} was not found")

    def _flip_one_byte(self) -> str:
        """Does what anybody with write access to the bucket can do without the lake's API."""
        task = next(iter(self._lake.tables.plan_scan(GAUGES).plan_files()))
        path: str = task.file.file_path
        location = dict(zip(("Bucket", "Key"), path.removeprefix("s3://").split("/", 1), strict=True))
        data = bytearray(self._lake.s3.get_object(**location)["Body"].read())
        data[len(data) // 2] ^= 1
        self._lake.s3.put_object(**location, Body=bytes(data))
        return path

    @cached_property
    def _jobs(self) -> Jobs:
        return Jobs(self._lake)

    @property
    def _leaves(self) -> list[tuple[int, Any]]:
        return list(self._lake.timeline.commits_since(GAUGES))

    @cached_property
    def _key(self) -> VerifierKey:
        """The public key: the checks use nothing else of the lake."""
        (key,) = {str(key) for _, key in self._lake.timeline.source.keyring().keys}
        return VerifierKey.parse(key)


def _line(row: dict[str, Any]) -> str:
    return "  ".join(str(value) for value in row.values())


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
