"""The versions that the Spark jobs are built for: one EMR Serverless release label, and its Spark and Iceberg.

The session, the stacks and the set-up read them from here. Imports only the standard library, so that the set-up can
import it before anything is installed.
"""

from __future__ import annotations

from dataclasses import dataclass

RELEASE_LABEL = "emr-spark-8.1.0"

SPARK = "4.1.1"  # pyproject.toml pins pyspark to the same version
SCALA = "2.13"
ICEBERG = "1.11.0"

# From Java 24 on, Netty in Iceberg's runtime may not use sun.misc.Unsafe, and every Parquet read fails.
JAVA_MIN = 17
JAVA_MAX = 23

# The release's own Iceberg, on the image of every worker. It must be on the driver's class path before a session
# exists, so it is set in the application's `spark.jars`, not by the session.
EMR_ICEBERG_JAR = "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"


@dataclass(frozen=True)
class Jar:
    """One self-contained jar, with its Maven coordinates and digest."""

    artifact: str
    sha256: str
    group: str = "org.apache.iceberg"
    version: str = ICEBERG

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


# Jars that are on EMR's image, and that a laptop must download.
JARS = (
    Jar(
        f"iceberg-spark-runtime-4.1_{SCALA}",
        "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242",
    ),
    Jar(
        "iceberg-aws-bundle",
        "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f",
    ),
)
