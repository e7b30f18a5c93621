"""The page at the gateway's root, in a real browser: tables, the timeline, and a proof the browser checks itself."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from infra.local.cloud import EmbeddedCloud
from tests.e2e.flow import TABLE, commit_and_wait

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium: `apt-get install chromium` brings one")

# CI keeps what lies here.
PICTURES = Path(os.environ.get("STRANDLINE_ARTEFACTS", "build/artefacts"))


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud() as cloud, pytest.MonkeyPatch.context() as patch:
        commit_and_wait(cloud, patch)
        cloud.serve_page()
        yield cloud


def shown(cloud: EmbeddedCloud, link: str = "", *, picture: str | None = None) -> str:
    """The page's text once it has loaded and asked what it asks, and a picture of it if wanted."""
    assert BROWSER is not None
    what = ["--dump-dom"]
    if picture is not None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        what = [f"--screenshot={PICTURES / picture}", "--window-size=1100,1500"]
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    command += ["--virtual-time-budget=15000", "--timeout=60000", *what, f"{cloud.gateway.url}/{link}"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<script.*?</script>", "", found, flags=re.S)))


def test_it_shows_the_tables_and_the_timeline(cloud: EmbeddedCloud) -> None:
    text = shown(cloud)
    assert TABLE in text and "2 rows" in text
    assert re.search(r"bronze.gauges\s+1 rows in 1 files, cow\s+1 in quarantine", text)
    assert "strandline.dev/lake" in text and re.search(r"#0\s+create", text)
    shown(cloud, picture="page.png")
    assert (PICTURES / "page.png").stat().st_size > 10_000


def test_a_commit_is_proven_by_the_browser(cloud: EmbeddedCloud) -> None:
    text = shown(cloud, "#commit=1")
    assert "Proven by your browser" in text and "leaf 1 of" in text


def test_a_flipped_bit_is_found_by_the_browser(cloud: EmbeddedCloud) -> None:
    text = shown(cloud, "#commit=1&tamper")
    assert "Not proven: the entry does not lead to the signed root" in text
    assert "Proven by your browser" not in text


def test_a_question_in_a_link_is_asked(cloud: EmbeddedCloud) -> None:
    text = shown(cloud, f"#sql={quote(f'select station from {TABLE} order by station')}")
    assert "2 rows in" in text and re.search(r"Brest\s+Newlyn", text)


def test_its_token_is_only_for_this_machines_own_name(cloud: EmbeddedCloud) -> None:
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"{cloud.gateway.url}/_page/session", headers={"Host": "rebound.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)


def test_every_field_has_a_label_and_every_answer_is_announced() -> None:
    page = Path("infra/local/page/index.html").read_text()
    fields = set(re.findall(r'<(?:input|textarea)[^>]* id="([^"]+)"', page)) - {"tamper"}  # wrapped in its label
    assert fields == set(re.findall(r'<label for="([^"]+)"', page))
    for status in ("head", "verdict", "route", "found"):
        assert re.search(rf'id="{status}" role="status" aria-live', page), status
