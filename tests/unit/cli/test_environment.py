"""`strandline env`: what it prints, a shell runs. Served by a real server on loopback, evaluated by a real bash."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infra.stage import ROOT
from strandline import profile
from strandline.profile import Profile
from tests.worlds.cli import answer, run

TRICKY = 'it\'s $HOME `id` "quoted" ; echo no & :smile: [bold]'
SESSION = {"endpoint": "http://127.0.0.1:5/api", "token": TRICKY}
SHELLS = [shell for shell in ("bash", "zsh", "dash") if shutil.which(shell)]


class Lake:
    """The control endpoint of `strandline dev`, with documents of the test's choice."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        lake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                document = lake.documents.get(self.path.removeprefix("/_strandline/"))
                self.send_response(404 if document is None else 200)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("STRANDLINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    served = Lake()
    thread = threading.Thread(target=served.server.serve_forever)
    thread.start()
    monkeypatch.setenv("STRANDLINE_DEV", served.url)
    yield served
    served.server.shutdown()
    served.server.server_close()
    thread.join()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.embedded.DEFAULT_PORT", 1)  # nobody listens there


@pytest.mark.parametrize("shell", SHELLS)
def test_eval_sets_the_variables_of_the_running_lake(lake: Lake, shell: str) -> None:
    lake.documents = {"environment": {"AWS_ACCESS_KEY_ID": "a b", "STRANDLINE_BUCKET": TRICKY}, "api": SESSION}
    script = f'eval "$({sys.executable} -m cli.main env)"; exec {sys.executable} -c "$SHOW"'
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    bare = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "STRANDLINE_DEV": lake.url, "SHOW": show, "HOME": "/"}
    done = subprocess.run([shell, "-c", script], env=bare, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = {
        "STRANDLINE_DEV": lake.url,
        "STRANDLINE_ENDPOINT": SESSION["endpoint"],
        "STRANDLINE_TOKEN": TRICKY,
        "AWS_ACCESS_KEY_ID": "a b",
        "STRANDLINE_BUCKET": TRICKY,
    }
    assert json.loads(done.stdout).items() >= wanted.items()
    assert answer("env")["environment"] == wanted


def test_a_lake_without_an_api_has_no_endpoint(lake: Lake) -> None:
    lake.documents = {"environment": {"AWS_REGION": "eu-west-1"}}
    assert answer("env")["environment"] == {"STRANDLINE_DEV": lake.url, "AWS_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    "environment",
    [
        {"X; touch owned; Y": "1"},
        {"PATH": "/tmp"},
        {"LD_PRELOAD": "/tmp/x.so"},
        {"STRANDLINE_X\n": "1"},
        {"AWS_REGION": "a\nb"},
        {"AWS_REGION": 7},
    ],
    ids=str,
)
def test_nothing_is_exported_that_a_lake_has_no_reason_to_set(lake: Lake, environment: dict[str, Any]) -> None:
    lake.documents = {"environment": {"AWS_ACCESS_KEY_ID": "fine", **environment}}
    result = run("env")
    assert (result.stdout, result.exception.kind.name) == ("", "invalid")


@pytest.mark.usefixtures("nobody")
def test_without_a_running_lake_it_is_the_one_of_the_login() -> None:
    profile.save(Profile("https://lake.example", TRICKY))
    wanted = {"STRANDLINE_ENDPOINT": "https://lake.example", "STRANDLINE_TOKEN": TRICKY}
    assert answer("env")["environment"] == wanted
    assert run("env").stdout.startswith("export STRANDLINE_ENDPOINT=https://lake.example\n")


def test_login_chooses_the_login_beside_a_running_lake(lake: Lake) -> None:
    lake.documents = {"environment": {"AWS_REGION": "eu-west-1"}}
    profile.save(Profile("https://lake.example", "t"))
    assert "STRANDLINE_DEV" in answer("env")["environment"]
    assert set(answer("env", "--login")["environment"]) == {"STRANDLINE_ENDPOINT", "STRANDLINE_TOKEN"}


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("words", [("env",), ("env", "--login")], ids=" ".join)
def test_no_lake_at_all_names_both_next_steps(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert (result.stdout, result.exception.kind.name) == ("", "not_found")
    assert "strandline dev" in str(result.exception) and "strandline login" in str(result.exception)


def test_a_named_lake_that_is_gone_is_not_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    profile.save(Profile("https://lake.example", "t"))
    monkeypatch.setenv("STRANDLINE_DEV", "http://127.0.0.1:1")
    result = run("env")
    assert (result.stdout, result.exception.kind.name) == ("", "not_found")
    assert "unset STRANDLINE_DEV" in str(result.exception)
