"""The bills of materials name what the images install, and an advisory on a locked version is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import lock
from tools.advisories import concerns, findings
from tools.sbom import IMAGES, LOCK, ROOT, bill, image_packages, read_lock

PERMITTED = ("Apache", "BSD", "MIT", "MPL", "Mozilla", "PSF", "CC0", "ISC", "Zlib")
"""Licences that allow distribution in an image without conditions on the lake's own code."""


@pytest.mark.parametrize("image", IMAGES)
def test_a_bill_is_complete_and_every_package_can_be_checked(image: str) -> None:
    packages = image_packages(IMAGES[image])
    document = bill(image, packages)
    components = {component["name"]: component for component in document["components"]}
    assert {"pyarrow", "pyiceberg", "boto3", "cryptography"} <= components.keys()
    assert not {"pytest", "mypy", "moto"} & components.keys()
    for component in components.values():
        assert component["version"] and component["properties"], component["name"]
        for stated in component.get("licenses", ()):
            assert any(word in stated["license"]["name"] for word in PERMITTED), component["name"]
    references = {component["bom-ref"] for component in components.values()}
    assert {ref for entry in document["dependencies"] for ref in entry["dependsOn"]} <= references


def test_the_images_are_those_of_the_stacks() -> None:
    stacks = "".join(path.read_text() for path in (ROOT / "infra/stacks").glob("*.py"))
    for image, (*extras,) in IMAGES.items():
        if image.startswith("function-"):
            assert f'extra="{extras[0]}"' in stacks, image
    locked = {name: tuple(extras) for name, extras in lock.IMAGES.items()}
    assert set(locked.values()) == set(IMAGES.values())  # what the Dockerfiles install is what `make lock` locks


def test_every_locked_package_has_a_hash() -> None:
    assert [package.name for package in read_lock(LOCK.read_text()).values() if not package.hashes] == []


def record(**affected: Any) -> dict[str, Any]:
    return {
        "id": "X-1",
        "summary": "bad",
        "affected": [{"package": {"ecosystem": "PyPI", "name": "PyArrow"}, **affected}],
    }


@pytest.mark.parametrize(
    ("events", "version", "hit"),
    [
        ([{"introduced": "0"}, {"fixed": "14.0.1"}], "14.0.0", True),
        ([{"introduced": "0"}, {"fixed": "14.0.1"}], "14.0.1", False),
        ([{"introduced": "2"}, {"last_affected": "3"}], "3", True),
        ([{"introduced": "2"}, {"fixed": "3"}, {"introduced": "5"}], "4", False),
        ([{"introduced": "2"}, {"fixed": "3"}, {"introduced": "5"}], "9.1", True),
        ([{"introduced": "not a version"}], "1", True),
    ],
)
def test_a_version_is_in_the_ranges_of_an_advisory(events: list[Any], version: str, hit: bool) -> None:
    assert concerns({"ranges": [{"type": "ECOSYSTEM", "events": events}]}, version) is hit


def test_an_advisory_on_a_locked_version_is_found(tmp_path: Path) -> None:
    packages = read_lock(LOCK.read_text())
    (tmp_path / "X-1.json").write_text(json.dumps(record(versions=[packages["pyarrow"].version])))
    (tmp_path / "X-2.json").write_text(json.dumps({**record(versions=[packages["pyarrow"].version]), "withdrawn": "x"}))
    (tmp_path / "X-3.json").write_text(json.dumps(record(versions=["0.1"])))
    assert list(findings(packages, tmp_path)) == [f"pyarrow {packages['pyarrow'].version}: X-1: bad"]
