"""Spark sessions: Iceberg over the Glue catalog, the same on EMR Serverless and on a laptop.

`catalog_conf` is the configuration of every session, `local_conf` what a machine other than EMR needs in addition.
Nothing is written to a local disk: Spark's files are in memory (tmpfs) and are removed when the session ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog import Conflict, Unavailable
from catalog.core import s3_layout
from spark_jobs import releases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog import Settings

CATALOG = "lake"

ROOT = Path(__file__).resolve().parents[1]
JARS_DIRECTORY = ROOT / "build" / "jars"
TMPFS = Path("/dev/shm")  # noqa: S108 - memory on purpose
_SCRATCH = "strandline-spark-"
_MIN_AGE_S = 60.0  # a younger directory may belong to a process that has not locked it yet

# No perf data: the JVM would map a file under /tmp for it. The log settings hide warnings about a class archive that no
# longer matches, which only costs time.
_JVM_FLAGS = "-XX:-UsePerfData -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off -Duser.timezone=UTC"
# Most local sessions live for seconds: using only the first compiler tier halves the start time, and the later speed.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1"


def catalog_conf(settings: Settings) -> dict[str, str]:
    """The configuration on every engine. The SDK finds credentials: a role, or the environment."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalogImplementation": "in-memory",  # no Hive metastore, no Derby beside Glue
        "spark.sql.defaultCatalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.python.daemon.module": "spark_jobs.daemon",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.warehouse": f"s3://{settings.bucket}/{s3_layout.TABLES.rstrip('/')}",
        f"{catalog}.client.region": settings.region,
        f"{catalog}.cache-enabled": "false",  # a cached table would hide the commits of every other writer
    }
    if settings.endpoint_url:
        conf |= {
            f"{catalog}.glue.endpoint": settings.endpoint_url,
            f"{catalog}.s3.endpoint": settings.endpoint_url,
            f"{catalog}.s3.path-style-access": "true",  # buckets have no host names on loopback
        }
    return conf


def local_conf(scratch: Path, *, long_lived: bool = False) -> dict[str, str]:
    """What a local session needs in addition: EMR's jars, and a directory in memory for Spark's files."""
    flags = f"{_JVM_FLAGS} -Djava.io.tmpdir={scratch}" + ("" if long_lived else f" {_SHORT_LIVED}")
    if (archive := class_archive()).exists():
        flags += f" -XX:SharedArchiveFile={archive}"
    return {
        "spark.master": "local[2]",
        # Not spark.jars, which would copy 112 MB into the scratch directory at every start, and whose class loader
        # cannot use the class archive.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, local_jars())),
        "spark.driver.extraJavaOptions": flags,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def local_environment(scratch: Path) -> dict[str, str]:
    """Environment of a local driver: its workers' Python, and options that keep the launcher's JVM off the disk."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": f"-XX:-UsePerfData {_SHORT_LIVED}",
        "TMPDIR": str(scratch),
    }


def local_jars() -> list[Path]:
    """The jars in the order of `releases.JARS`, on which the class archive depends."""
    jars = [JARS_DIRECTORY / jar.file_name for jar in releases.JARS]
    if missing := [jar.name for jar in jars if not jar.exists()]:
        raise Unavailable(f"{' and '.join(missing)} not in {JARS_DIRECTORY}: run `make setup` to download them")
    return jars


def class_archive() -> Path:
    """The path of the class archive (parsed Spark classes) for this Java and these jars; it may not exist."""
    java = shutil.which("java", path=_java_path()) or "java"
    release = Path(java).resolve().parents[1] / "release"
    java_build = release.read_text() if release.exists() else str(release)
    pyspark = find_spec("pyspark")
    classes = [Path(pyspark.origin)] if pyspark and pyspark.origin else []
    # The JVM rejects an archive if its jars were modified since, so their times are part of the name.
    times = [path.stat().st_mtime_ns for path in (*classes, *local_jars())]
    fingerprint = (
        f"{releases.SPARK} {releases.ICEBERG} {sys.prefix} {times} {_JVM_FLAGS} {_SHORT_LIVED} {java_build}".encode()
    )
    return ROOT / "build" / f"spark-{hashlib.sha256(fingerprint).hexdigest()[:16]}.jsa"


def _java_path() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin") if home else os.environ.get("PATH")


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory in memory, removed at the end of the block.

    It is locked while its process lives. Directories of killed processes are not locked, and are removed here.
    """
    parent = TMPFS if TMPFS.is_dir() else Path(tempfile.gettempdir())
    for stale in parent.glob(f"{_SCRATCH}*"):
        with suppress(OSError), _locked(stale):
            if time.time() - stale.stat().st_mtime > _MIN_AGE_S:
                shutil.rmtree(stale, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent))
    with _locked(path):
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def spark_session(
    app_name: str, settings: Settings, *, local: bool, long_lived: bool = False
) -> Iterator[SparkSession]:
    """A session, stopped at the end of the block.

    With `local`, this process starts Spark and afterwards ends its JVM and removes its files. A `long_lived` session
    starts slower and then runs at full speed, as on EMR. Without `local`, the engine that started the process (EMR, or
    the embedded cloud) has configured Spark, and only the catalog is added. Conflict if the process has a session.
    """
    if not local:
        with _built(app_name, catalog_conf(settings)) as spark:
            yield spark
        return
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        raise Conflict("this process already has a Spark session, and can have only one: stop it first")
    _end_jvm()  # the JVM of a stopped session has another class path and other files
    with scratch_directory() as scratch:
        conf = {**local_conf(scratch, long_lived=long_lived), **catalog_conf(settings)}
        try:
            with _environment(local_environment(scratch)), _built(app_name, conf) as spark:
                yield spark
        finally:
            _end_jvm()


@contextmanager
def _built(app_name: str, conf: dict[str, str]) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession  # imported late: it takes 0.4 s

    builder: Any = SparkSession.builder
    spark: SparkSession = builder.appName(app_name).config(map=conf).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets variables that the JVM and its Python workers inherit. tempfile caches TMPDIR, so it is set there too."""
    before = {name: os.environ.get(name) for name in variables}
    directory = tempfile.tempdir
    os.environ.update(variables)
    tempfile.tempdir = variables["TMPDIR"]
    try:
        yield
    finally:
        tempfile.tempdir = directory
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end_jvm() -> None:
    """Ends the JVM. pyspark would keep it until the process ends, and the next session would find its files removed."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its stdin does
    gateway.proc.wait(timeout=300)
