"""The embedded cloud: deploys the lake's stacks in memory, on loopback. docs/adr/0003 says why."""
