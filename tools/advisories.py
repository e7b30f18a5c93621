"""Known vulnerabilities in locked packages, by a copy of OSV: `python -m tools.advisories [DIRECTORY]`.

A registry of packages has no advisories, and the build reaches no other host. So CI runs this on a directory that its
operator provides (`ADVISORIES`: the unpacked PyPI export of osv.dev, one JSON record a file), and says so if there is
none: nothing was checked then.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from tools.sbom import LOCK, Package, normal, read_lock


def findings(packages: dict[str, Package], records: Path) -> Iterator[str]:
    """One line for each record that concerns a locked version."""
    for path in sorted(records.rglob("*.json")):
        record = json.loads(path.read_bytes())
        if record.get("withdrawn"):
            continue
        for affected in record.get("affected", ()):
            source = affected.get("package", {})
            package = packages.get(normal(source.get("name", "")))
            if package is not None and source.get("ecosystem") == "PyPI" and concerns(affected, package.version):
                yield f"{package.name} {package.version}: {record.get('id')}: {record.get('summary', 'see the record')}"


def concerns(affected: dict[str, Any], version: str) -> bool:
    """Whether the version is listed, or lies in a range (OSV schema 1.6, section `affected`)."""
    if version in affected.get("versions", ()):
        return True
    return any(_in_range(affected_range, version) for affected_range in affected.get("ranges", ()))


def _in_range(affected: dict[str, Any], version: str) -> bool:
    if affected.get("type") != "ECOSYSTEM":
        return False
    inside = False
    try:
        for event in affected.get("events", ()):
            if "introduced" in event:
                inside = inside or Version(event["introduced"]) <= Version(version)
            elif "fixed" in event:
                inside = inside and Version(version) < Version(event["fixed"])
            elif "last_affected" in event:
                inside = inside and Version(version) <= Version(event["last_affected"])
    except InvalidVersion:
        return True  # a person decides what the versions of this record mean
    return inside


def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ADVISORIES")
    if not directory:
        print("advisories: not checked; set ADVISORIES to a directory with OSV's records of PyPI", file=sys.stderr)
        return
    if not any(Path(directory).rglob("*.json")):
        sys.exit(f"advisories: {directory} has no records")
    found = list(findings(read_lock(LOCK.read_text()), Path(directory)))
    for line in found:
        print(line)
    if found:
        sys.exit(f"advisories: {len(found)} concern locked versions: update them, then `make lock`")


if __name__ == "__main__":
    main()
