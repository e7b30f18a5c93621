"""The embedded cloud: the lake's own stacks, stood up in memory on loopback. docs/adr/0003 says why it is built so."""
