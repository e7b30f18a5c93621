"""A job driver as EMR Serverless describes it, translated into one child process on this machine.

Knows spark-submit's options and EMR's image; never knows about job states. `plan` decides everything and
starts nothing; `Driver` is the running process.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlparse

from infra.local.endpoint import Endpoint
from spark_jobs import session

IMAGE_ROOT = "/opt/strandline"  # where the deployed image keeps the checkout
DRIVER_ENV = "spark.emr-serverless.driverEnv."

# Sizes of workers and features of the service: this machine is what it is, so they are let go rather than
# failed on.
_SERVICE_ONLY = re.compile(
    r"spark\.(emr-serverless\.|aws\.|dynamicAllocation\.|executor\.|driver\.(memory|cores|host|bindAddress)|master$)"
)
_SERVICE_ONLY_OPTIONS = (
    "driver-memory",
    "driver-cores",
    "executor-memory",
    "executor-cores",
    "num-executors",
)
_FILE_OPTIONS = ("py-files", "files", "jars", "archives")
_IMAGE_JARS = "/usr/share/aws/"

_MERGED = ("spark.driver.extraClassPath", "spark.driver.extraJavaOptions")


class NotRunnable(Exception):
    """The job run cannot be started as it was asked for; the message becomes its state details."""


@dataclass(frozen=True)
class Submission:
    """All that starts a driver: nothing in it refers back to the request."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path


def plan(
    driver: Mapping[str, Any],
    defaults: Sequence[Mapping[str, str]],
    endpoint: Endpoint,
    principal: str,
    scratch: Path,
) -> Submission:
    """`defaults` are spark-defaults, weakest first; the driver's own --conf is stronger than all of them.

    Cost: one GET per s3:// file named. Everything fetched goes to `scratch`, which is in memory.
    """
    spark = driver.get("sparkSubmit")
    if spark is None:
        raise NotRunnable("only sparkSubmit job drivers are run here, no Hive")
    options = _parse(spark.get("sparkSubmitParameters") or "")
    asked = {key: value for layer in (*defaults, options.conf) for key, value in layer.items()}
    files = _Files(endpoint, principal, scratch)
    script = files.local(spark["entryPoint"], "entry point")
    if script.suffix != ".py":
        raise NotRunnable(f"entry point {spark['entryPoint']} is not Python: only .py scripts are run here")
    python_path = [
        *files.locals(options.lists["py-files"] or asked.pop("spark.submit.pyFiles", "")),
        session.ROOT,
    ]
    conf = _conf(asked, scratch)
    for option in ("files", "jars", "archives"):
        found = files.locals(options.lists[option] or asked.get(f"spark.{option}", ""))
        conf.pop(f"spark.{option}", None)
        if found:
            conf[f"spark.{option}"] = ",".join(map(str, found))
    submit = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME") if name in os.environ},
        **session.local_environment(scratch),
        **endpoint.environment(principal),
        **{key.removeprefix(DRIVER_ENV): value for key, value in asked.items() if key.startswith(DRIVER_ENV)},
        "PYTHONPATH": os.pathsep.join(map(str, python_path)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # a run leaves nothing behind, not even a .pyc
        "PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"]),
    }
    command = (sys.executable, str(script), *map(str, spark.get("entryPointArguments") or ()))
    return Submission(command, environment, scratch)


def _conf(asked: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The job's settings, over what is only a default here, under what this machine cannot do otherwise."""
    local = session.local_conf(scratch)
    kept = {key: value for key, value in asked.items() if not _SERVICE_ONLY.match(key)}
    forced = {key: value for key, value in local.items() if not key.startswith(("spark.sql.shuffle", "spark.ui"))}
    for key, joint in zip(_MERGED, (os.pathsep, " "), strict=True):
        own = [part for part in kept.get(key, "").split(joint) if part and not part.startswith(_IMAGE_JARS)]
        forced[key] = joint.join([local[key], *own])
    return {**local, **kept, **forced}


@dataclass(frozen=True)
class _Options:
    conf: dict[str, str]
    lists: dict[str, str]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NotRunnable(f"sparkSubmitParameters: {message}")


def _parse(parameters: str) -> _Options:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    parser.add_argument("--name")
    for option in (*_FILE_OPTIONS, *_SERVICE_ONLY_OPTIONS):
        parser.add_argument(f"--{option}", default="")
    try:
        given = vars(parser.parse_args(shlex.split(parameters)))
    except ValueError as error:
        raise NotRunnable(f"sparkSubmitParameters: {error}") from None
    conf = {}
    for setting in given["conf"]:
        key, equals, value = setting.partition("=")
        if not equals:
            raise NotRunnable(f"sparkSubmitParameters: --conf {setting} is not key=value")
        conf[key] = value
    return _Options(conf, {option: given[option.replace("-", "_")] for option in _FILE_OPTIONS})


@dataclass(frozen=True)
class _Files:
    """Files a job names, brought to paths of this machine."""

    endpoint: Endpoint
    principal: str
    scratch: Path

    def locals(self, names: str) -> list[Path]:
        wanted = [name for name in names.split(",") if name and not urlparse(name).path.startswith(_IMAGE_JARS)]
        return [self.local(name, "file") for name in wanted]

    def local(self, name: str, what: str) -> Path:
        url = urlparse(name)
        if url.scheme in ("s3", "s3a", "s3n"):
            return self._fetched(url.netloc, url.path.lstrip("/"), what)
        if url.scheme not in ("", "local", "file") or not url.path.startswith("/"):
            raise NotRunnable(f"{what} {name} is neither s3://, file:// nor local://")
        inside = url.path.removeprefix(IMAGE_ROOT + "/")
        path = session.ROOT / inside if inside != url.path else Path(url.path)
        if not path.is_file():
            raise NotRunnable(f"{what} {name} does not exist ({path} is not a file)")
        return path

    def _fetched(self, bucket: str, key: str, what: str) -> Path:
        s3 = self.endpoint.client("s3", self.principal)
        target = self.scratch / "files" / Path(key).name
        target.parent.mkdir(exist_ok=True)
        try:
            body = s3.get_object(Bucket=bucket, Key=key)["Body"]
        except (s3.exceptions.ClientError, ValueError) as error:
            raise NotRunnable(f"{what} s3://{bucket}/{key} could not be read: {error}") from None
        with target.open("wb") as file:
            shutil.copyfileobj(body, file)
        return target
