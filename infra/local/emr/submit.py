"""Translates an EMR Serverless job driver into a command for one local child process.

Interprets spark-submit's options and paths in EMR's image; job states are the runner's. `plan` starts nothing;
`Driver` is the running process.
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

from infra.local.emr.capacity import Capacity, UnsupportedSize, capacity_of
from infra.local.endpoint import Endpoint
from spark_jobs import session

IMAGE_ROOT = "/opt/strandline"  # where the deployed image keeps the checkout
DRIVER_ENV = "spark.emr-serverless.driverEnv."

# Worker sizes and features of the service. The sizes count for the account's quota; nothing else of them is used here.
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
_SIZE_OPTIONS = {
    "driver-memory": "spark.driver.memory",
    "driver-cores": "spark.driver.cores",
    "executor-memory": "spark.executor.memory",
    "executor-cores": "spark.executor.cores",
}
_FILE_OPTIONS = ("py-files", "files", "jars", "archives")
_IMAGE_JARS = "/usr/share/aws/"

_MERGED = ("spark.driver.extraClassPath", "spark.driver.extraJavaOptions")


class NotRunnable(Exception):
    """The job run cannot run here; the message becomes its state details."""


@dataclass(frozen=True)
class Submission:
    """The command, environment and working directory of a driver."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    capacity: Capacity


def plan(
    driver: Mapping[str, Any],
    defaults: Sequence[Mapping[str, str]],
    endpoint: Endpoint,
    principal: str,
    scratch: Path,
) -> Submission:
    """Later `defaults` (spark-defaults) override earlier ones, and the driver's own --conf overrides them all.

    Costs one GET for each s3:// file. Downloads go to `scratch`, which is in memory. Raises NotRunnable.
    """
    spark = driver.get("sparkSubmit")
    if spark is None:
        raise NotRunnable("the embedded cloud runs only sparkSubmit job drivers, not Hive")
    options = _parse(spark.get("sparkSubmitParameters") or "")
    requested_conf = {key: value for layer in (*defaults, options.conf) for key, value in layer.items()}
    try:
        capacity = capacity_of(requested_conf)
    except UnsupportedSize as error:
        raise NotRunnable(str(error)) from None
    files = _Files(endpoint, principal, scratch)
    script = files.local(spark["entryPoint"], "entry point")
    if script.suffix != ".py":
        raise NotRunnable(f"entry point {spark['entryPoint']} is not Python: the embedded cloud runs only .py scripts")
    python_path = [
        *files.locals(options.lists["py-files"] or requested_conf.pop("spark.submit.pyFiles", "")),
        session.ROOT,
    ]
    conf = _conf(requested_conf, scratch)
    for option in ("files", "jars", "archives"):
        paths = files.locals(options.lists[option] or requested_conf.get(f"spark.{option}", ""))
        conf.pop(f"spark.{option}", None)
        if paths:
            conf[f"spark.{option}"] = ",".join(map(str, paths))
    submit = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME") if name in os.environ},
        **session.local_environment(scratch),
        **_sdk_environment(endpoint, principal),
        **{key.removeprefix(DRIVER_ENV): value for key, value in requested_conf.items() if key.startswith(DRIVER_ENV)},
        # The image's own interpreter is this one here.
        **dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable),
        "PYTHONPATH": os.pathsep.join(map(str, python_path)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # a job run leaves no .pyc files behind
        "PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"]),
    }
    command = (sys.executable, str(script), *map(str, spark.get("entryPointArguments") or ()))
    return Submission(command, environment, scratch, capacity)


def _sdk_environment(endpoint: Endpoint, principal: str) -> dict[str, str]:
    """Address and credentials, as from the role. EMR promises a job no region: an image of our own gets what the
    application's driverEnv names (docs/emulators.md)."""
    variables = endpoint.environment(principal)
    return {name: value for name, value in variables.items() if name not in ("AWS_REGION", "AWS_DEFAULT_REGION")}


def _conf(requested_conf: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The local defaults, overridden by the job's settings, overridden by what local mode requires."""
    local = session.local_conf(scratch)
    applicable = {key: value for key, value in requested_conf.items() if not _SERVICE_ONLY.match(key)}
    forced = {key: value for key, value in local.items() if not key.startswith(("spark.sql.shuffle", "spark.ui"))}
    for key, separator in zip(_MERGED, (os.pathsep, " "), strict=True):
        own = [part for part in applicable.get(key, "").split(separator) if part and not part.startswith(_IMAGE_JARS)]
        forced[key] = separator.join([local[key], *own])
    return {**local, **applicable, **forced}


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
        arguments = vars(parser.parse_args(shlex.split(parameters)))
    except ValueError as error:
        raise NotRunnable(f"sparkSubmitParameters: {error}") from None
    conf = {}
    for option, key in _SIZE_OPTIONS.items():
        if value := arguments[option.replace("-", "_")]:
            conf[key] = value
    for setting in arguments["conf"]:
        key, equals, value = setting.partition("=")
        if not equals:
            raise NotRunnable(f"sparkSubmitParameters: --conf {setting} is not key=value")
        conf[key] = value
    return _Options(conf, {option: arguments[option.replace("-", "_")] for option in _FILE_OPTIONS})


@dataclass(frozen=True)
class _Files:
    """The files that a job names, as local paths."""

    endpoint: Endpoint
    principal: str
    scratch: Path

    def locals(self, names: str) -> list[Path]:
        needed = [name for name in names.split(",") if name and not urlparse(name).path.startswith(_IMAGE_JARS)]
        return [self.local(name, "file") for name in needed]

    def local(self, name: str, role: str) -> Path:
        url = urlparse(name)
        if url.scheme in ("s3", "s3a", "s3n"):
            return self._download(url.netloc, url.path.lstrip("/"), role)
        if url.scheme not in ("", "local", "file") or not url.path.startswith("/"):
            raise NotRunnable(f"{role} {name} is not an s3://, file:// or local:// URL")
        inside = url.path.removeprefix(IMAGE_ROOT + "/")
        path = session.ROOT / inside if inside != url.path else Path(url.path)
        if not path.is_file():
            raise NotRunnable(f"{role} {name} does not exist ({path} is not a file)")
        return path

    def _download(self, bucket: str, key: str, role: str) -> Path:
        s3 = self.endpoint.client("s3", self.principal)
        target = self.scratch / "files" / Path(key).name
        target.parent.mkdir(exist_ok=True)
        try:
            body = s3.get_object(Bucket=bucket, Key=key)["Body"]
        except (s3.exceptions.ClientError, ValueError) as error:
            raise NotRunnable(f"could not read {role} s3://{bucket}/{key}: {error}") from None
        with target.open("wb") as file:
            shutil.copyfileobj(body, file)
        return target
