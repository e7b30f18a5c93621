"""Installs each missing part, and records which Node and Java to use. Takes about a second if nothing is missing."""

from __future__ import annotations

import json

from tools.setup import ROOT, archive, cdk, jars, java, node, python

CHOSEN = ROOT / "build" / "chosen-tools.json"


def main() -> None:
    python.ensure()
    node.ensure()
    cdk.ensure()
    java.ensure()
    jars.ensure()
    archive.ensure()
    CHOSEN.parent.mkdir(exist_ok=True)
    path = [str(python.BIN), *node.path_entries(), *cdk.path_entries(), *java.path_entries()]
    CHOSEN.write_text(json.dumps({"path": path, "variables": java.variables()}))


if __name__ == "__main__":
    main()
