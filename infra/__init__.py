"""The lake's infrastructure: the CDK stacks, and the embedded cloud that runs them on one machine."""

from __future__ import annotations

import os
from pathlib import Path

# Importing aws_cdk makes jsii start the program that this variable names as Node.
os.environ.setdefault("JSII_NODE", str(Path(__file__).with_name("jsii_node.py")))
