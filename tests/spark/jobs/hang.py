"""hang.py BUCKET KEY [--spark]: tells its process group under KEY, then never ends by itself."""

import os
import sys
import threading

import boto3

from catalog.core.settings import load_settings
from spark_jobs.session import spark_session


def hang() -> None:
    boto3.client("s3").put_object(Bucket=sys.argv[1], Key=sys.argv[2], Body=str(os.getpgrp()).encode())
    threading.Event().wait()


if "--spark" in sys.argv:
    with spark_session("hang", load_settings(), local=False):
        hang()
hang()
