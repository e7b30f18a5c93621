"""`strandline witness`: runs a witness for other logs (c2sp.org/tlog-witness), and makes its key."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog import Invalid
from catalog.core import s3_layout
from catalog.merkle.cosignature import WitnessSigner
from catalog.merkle.note import Ed25519Signer, VerifierKey
from cli.lake_choice import use_lake
from cli.lake_commands import add_command
from cli.proof import KEY_HELP, verifier_keys

if TYPE_CHECKING:
    from catalog.timeline import WitnessRecords
    from cli.output import Output

LISTEN = "127.0.0.1:7380"
TIMEOUT_S = 10.0


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Run a witness, which cosigns the checkpoints of other logs.", no_args_is_help=True)
    add_command(group, keygen, "witness keygen witness.key --name witness.example/w1 > w1.vkey")
    add_command(
        group,
        run,
        "witness run witness.key --log @neighbour.vkey",
        "witness run witness.key --log lake.example+1a2b3c4d+AQ… --state s3://my-bucket/witness/ --listen 0.0.0.0:80",
    )
    app.add_typer(group, name="witness")


def keygen(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file to make. It holds the secret key, and only you may read it.")],
    name: Annotated[str, typer.Option(help="The witness's name, a URL without its scheme: witness.example/w1.")],
) -> None:
    """Make the key of a new witness, and print its public key. In a policy file: `witness <name> <key> <url>`."""
    output: Output = context.obj
    try:
        signer = Ed25519Signer.generate(name)
    except ValueError as error:
        raise Invalid(str(error)) from None
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Invalid(f"{file} exists, and a witness's key is never replaced: choose another file") from None
    except OSError as error:
        raise Invalid(f"{file} cannot be written: {error}") from None
    with os.fdopen(descriptor, "w") as stream:
        stream.write(signer.private_key() + "\n")
    key = WitnessSigner(signer.name, signer.seed).witness_key
    output.data({"file": str(file), "key": str(key)}, str(key))


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The key file, made by `witness keygen`.")],
    log: Annotated[list[str], typer.Option("--log", help=f"A log to witness. {KEY_HELP}")],
    listen: Annotated[str, typer.Option(help="The address, HOST:PORT. Port 0 takes a free one.")] = LISTEN,
    state: Annotated[
        str | None,
        typer.Option(
            help="Where the witness keeps its records, s3://BUCKET/PREFIX. Only the witness may write there.",
            show_default="witness/ in the lake's bucket",
        ),
    ] = None,
) -> None:
    """Run a witness until Ctrl-C. It cosigns what extends everything that it cosigned before.

    It serves HTTP without TLS: for others than this machine, put a server with a certificate in front of it.
    """
    from catalog.merkle.witness import Witness
    from catalog.timeline import WitnessServer, WitnessService

    output: Output = context.obj
    signer, logs = read_key(file), by_origin(verifier_keys(log))
    if any(key.public_key == signer.witness_key.public_key for keys in logs.values() for key in keys):
        raise Invalid(f"{file} is the key of a log that it should witness: make one with `strandline witness keygen`")
    host, port = address(listen)
    records = _records(state, signer)
    for origin in logs:  # says now, rather than at the first request, that the records cannot be read
        records.load(origin)
    service = WitnessService(Witness(signer, logs), records)
    try:
        server = WitnessServer(service, host, port)
    except OSError as error:
        raise Invalid(f"{listen} cannot be listened on: {error}") from None
    text = f"The witness {signer.name} listens on {server.url} for {len(logs)} logs. Its key:\n{signer.witness_key}"
    output.data({"url": server.url, "key": str(signer.witness_key), "logs": sorted(logs)}, text)
    if not _is_loopback(host):
        output.caption("Others reach it, and it has no TLS: put a server with a certificate in front of it.")
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()


def read_key(file: Path) -> WitnessSigner:
    """The signer in a key file. Invalid if others than its owner may read it: the key may be known."""
    try:
        mode = file.stat().st_mode
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the key {file} cannot be read: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise Invalid(f"others may read the key {file}: run `chmod 600 {file}`, and make a new key if somebody has")
    try:
        signer = Ed25519Signer.parse(text)
    except ValueError as error:
        raise Invalid(f"{file} is {error}: make one with `strandline witness keygen`") from None
    return WitnessSigner(signer.name, signer.seed)


def by_origin(keys: list[VerifierKey]) -> dict[str, list[VerifierKey]]:
    """The logs: a key's name is its log's origin, and a log may have several keys."""
    return {key.name: [other for other in keys if other.name == key.name] for key in keys}


def address(listen: str) -> tuple[str, int]:
    """`127.0.0.1:7380` and `[::1]:7380` as host and port."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"{listen!r} is not an address: write HOST:PORT, for example {LISTEN}")
    return host, int(port)


def _records(state: str | None, signer: WitnessSigner) -> WitnessRecords:
    from catalog.core.clients import make_client
    from catalog.timeline import WitnessRecords

    if state is None:
        use_lake()
        bucket, prefix = os.environ["STRANDLINE_BUCKET"], s3_layout.WITNESS
    else:
        bucket, _, prefix = state.removeprefix("s3://").partition("/")
        if not state.startswith("s3://") or not bucket:
            raise Invalid(f"{state!r} is not a place for records: write s3://BUCKET/PREFIX")
        prefix = f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else ""
    s3 = make_client(
        "s3",
        region=os.environ.get("AWS_REGION"),
        endpoint_url=os.environ.get("AWS_ENDPOINT_URL"),
        read_timeout_s=TIMEOUT_S,
    )
    return WitnessRecords(s3, bucket, prefix, signer.witness_key)


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
