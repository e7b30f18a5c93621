"""A CycloneDX bill of materials for each image, from the locks: `python -m tools.sbom` writes them to build/sbom/.

The lock holds packages for every platform, so a bill may name one that another platform needs. Licences are those that
the installed packages state.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "all.lock"
OUT = ROOT / "build" / "sbom"
IMAGES: dict[str, tuple[str, ...]] = {
    "function-api": ("api",),
    "function-ingest": ("ingest",),
    "function-sequencer": ("timeline",),
    "jobs": ("ingest", "notes", "query", "vectors"),
}
"""Image -> the extras that its Dockerfile installs."""
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CLASSIFIER = "License :: OSI Approved :: "


@dataclass
class Package:
    name: str
    version: str
    hashes: list[str] = field(default_factory=list)
    needed_by: list[str] = field(default_factory=list)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> dict[str, Package]:
    """The packages of a lock that uv wrote, with who needs each (`# via …`)."""
    packages, current = dict[str, Package](), None
    for line in text.splitlines():
        if pin := _PIN.match(line):
            current = packages.setdefault(normal(pin["name"]), Package(normal(pin["name"]), pin["version"]))
        elif current is not None and (digest := _HASH.search(line)):
            current.hashes.append(digest[1])
        elif current is not None and line.strip().startswith("#"):
            who = line.strip().lstrip("#").strip().removeprefix("via").strip()
            current.needed_by += [normal(who.split()[0])] if who else []
    return packages


def image_packages(extras: tuple[str, ...]) -> list[Package]:
    """The packages that an image with these extras installs, and all that they need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted, packages = set[str](), read_lock(LOCK.read_text())

    def add(requirements: list[str]) -> None:
        for requirement in requirements:
            name = normal(re.split(r"[\s\[<>=!~;@]", requirement, maxsplit=1)[0])
            if name == normal(project["name"]):
                inner = requirement.partition("[")[2].partition("]")[0]
                add([text for extra in inner.split(",") for text in project["optional-dependencies"][extra.strip()]])
            else:
                wanted.add(name)

    add(project.get("dependencies", []))
    for extra in extras:
        add(project["optional-dependencies"][extra])
    while more := {package.name for package in packages.values() if wanted & {*package.needed_by}} - wanted:
        wanted |= more
    if missing := wanted - packages.keys():
        raise SystemExit(f"{LOCK.name} lacks {', '.join(sorted(missing))}: run `make lock`")
    return [packages[name] for name in sorted(wanted)]


def licence(name: str) -> str | None:
    """The licence that an installed package states: its SPDX expression, its classifiers, or its own words."""
    try:
        stated = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if expression := stated.get("License-Expression"):
        return str(expression)
    classifiers = [text.removeprefix(_CLASSIFIER) for text in stated.get_all("Classifier") or [] if _CLASSIFIER in text]
    words = (stated.get("License") or "").strip().splitlines()
    return " AND ".join(classifiers) or (words[0][:80] if words else None)


def bill(image: str, packages: list[Package]) -> dict[str, Any]:
    """CycloneDX 1.6. Without a time or a serial number: the same locks give the same bytes."""
    components = []
    for package in packages:
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": f"pkg:pypi/{package.name}@{package.version}",
            "name": package.name,
            "version": package.version,
            "purl": f"pkg:pypi/{package.name}@{package.version}",
            # Of the files that may be installed: a wheel for each platform, and the source.
            "properties": [{"name": "strandline:sha256", "value": digest} for digest in sorted(package.hashes)],
        }
        if (stated := licence(package.name)) is not None:
            component["licenses"] = [{"license": {"name": stated}}]
        components.append(component)
    names = {package.name: package for package in packages}
    dependencies = [
        {
            "ref": f"pkg:pypi/{package.name}@{package.version}",
            "dependsOn": sorted(
                f"pkg:pypi/{other.name}@{other.version}" for other in names.values() if package.name in other.needed_by
            ),
        }
        for package in packages
    ]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": f"strandline-{image}", "bom-ref": image}},
        "components": components,
        "dependencies": dependencies,
    }


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    licences = dict[str, set[str]]()
    for image, extras in IMAGES.items():
        packages = image_packages(extras)
        (OUT / f"{image}.cdx.json").write_text(json.dumps(bill(image, packages), indent=1) + "\n")
        print(f"{image}: {len(packages)} packages", file=sys.stderr)
        for package in packages:
            licences.setdefault(licence(package.name) or "(not stated)", set()).add(package.name)
    for name, users in sorted(licences.items()):
        print(f"{name}: {', '.join(sorted(users))}")


if __name__ == "__main__":
    main()
