"""The page at the gateway's root, in a real browser and by keyboard: tables, the timeline as it grows, a proof that the
browser checks itself, questions and searches; held against axe's rules for those who do not see it.
"""

from __future__ import annotations

import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from catalog.changes import KeySet
from catalog.lake import Lake
from infra.local.cloud import EmbeddedCloud
from tests.e2e.flow import TABLE, commit_and_wait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: `apt-get install chromium` brings one")

# CI keeps what lies here.
PICTURES = Path(os.environ.get("STRANDLINE_ARTEFACTS", "build/artefacts"))
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
NOTES = "bronze.field_notes"


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[EmbeddedCloud, Lake]]:
    with EmbeddedCloud() as cloud, pytest.MonkeyPatch.context() as patch:
        lake = commit_and_wait(cloud, patch)
        lake.tables.create(NOTES, {"path": "string", "body": "string"}, key=["path"])
        rows = {"spring.md": "At full moon the water rises highest.", "bread.md": "Feed the starter before baking."}
        lake.tables.insert(NOTES, [{"path": path, "body": body} for path, body in rows.items()])
        lake.vectors.create(NOTES, "body")
        cloud.wait_until_idle()
        cloud.serve_page()
        yield cloud, lake


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, running: tuple[EmbeddedCloud, Lake]) -> Iterator[Page]:
    """The page, opened and at rest. Whatever its scripts say went wrong fails the test."""
    expect.set_options(timeout=30_000)
    context = browser.new_context(base_url=running[0].gateway.url, viewport={"width": 1100, "height": 1500})
    page, wrong = context.new_page(), list[str]()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    go(page)
    yield page
    context.close()
    assert not wrong


def go(page: Page, link: str = "") -> None:
    page.goto(f"/{link}")
    page.reload()  # a link that differs in nothing but its fragment is no new page
    expect(page.locator("#leaves li").first).to_be_visible()
    expect(page.locator(".card").first).to_be_visible()


def picture(page: Page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / name, full_page=True)


def leaf(page: Page, index: int) -> str:
    return f"#leaves button:has(.id:text-is('#{index}'))"


def test_it_shows_the_tables_and_the_timeline(page: Page) -> None:
    expect(page.locator(".card", has_text=TABLE)).to_contain_text("2 rows in")
    expect(page.locator(".card[data-state=failing]")).to_contain_text(
        re.compile(r"bronze.gauges\s*1 row in 1 file, cow\s*1 in quarantine")
    )
    expect(page.locator("#head")).to_contain_text(re.compile(r"strandline.dev/lake: \d+ leaves"))
    expect(page.locator(leaf(page, 0))).to_contain_text("create")
    picture(page, "page.png")


def test_a_commit_is_proven_by_the_browser_and_a_flipped_bit_is_found(page: Page) -> None:
    page.click(leaf(page, 1))
    expect(page.locator("#verdict")).to_contain_text(re.compile(r"Proven by your browser in .*: leaf 1 of \d+"))
    picture(page, "proof.png")
    page.get_by_label("flip one bit").check()
    expect(page.locator("#verdict")).to_contain_text("Not proven: the entry does not lead to the signed root")


def test_a_proof_by_another_key_than_the_first_one_seen_is_refused(page: Page) -> None:
    page.click(leaf(page, 1))
    expect(page.locator("#verdict")).to_contain_text("Proven by your browser")
    page.route("**/timeline/key", lambda route: route.fulfill(body="strandline.dev/lake+00000000+AAAA"))
    page.click(leaf(page, 0))  # the key that was pinned still counts, whatever the server says now
    expect(page.locator("#verdict")).to_contain_text(re.compile("Proven by your browser in .*: leaf 0 of"))
    page.evaluate("localStorage.clear()")
    page.click(leaf(page, 1))
    expect(page.locator("#verdict")).to_contain_text("Not proven")


def test_a_row_proof_is_checked_by_the_browser(page: Page, running: tuple[EmbeddedCloud, Lake], tmp_path: Path) -> None:
    lake, file = running[1], tmp_path / "spring.tlog-proof"
    index = next(at for at, leaf in lake.timeline.commits_since(NOTES) if leaf.operation == "append")
    proof = lake.prove_answer(NOTES, KeySet({"path": ["spring.md", "autumn.md"]}), index)
    file.write_bytes(proof.write())
    page.get_by_label("Proof file").set_input_files(file)
    page.get_by_label("Table", exact=True).fill(NOTES)
    page.get_by_label("Keys").fill("path=spring.md\npath=autumn.md")
    page.get_by_label("At index").fill(str(index))
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#row-verdict")).to_contain_text(
        f"Proven by your browser: {NOTES} had 1 row of these 2 keys, and no other of them at index {index}."
    )
    expect(page.locator("#row-rows td")).to_have_text(["spring.md", "At full moon the water rises highest."])
    page.get_by_label("Keys").fill("path=bread.md")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#row-verdict")).to_contain_text("Not proven")
    expect(page.locator("#row-rows")).to_be_hidden()


def test_the_timeline_grows_while_it_is_looked_at(page: Page, running: tuple[EmbeddedCloud, Lake]) -> None:
    before = page.locator("#leaves li").count()
    running[1].tables.insert(TABLE, [{"station": "Leith", "metres": 5.5}])
    expect(page.locator("#leaves li")).to_have_count(before + 1)
    expect(page.locator("#leaves li").first).to_contain_text(f"append{TABLE}")
    expect(page.locator(".card[data-state=fresh]", has_text=TABLE)).to_contain_text("3 rows")


def test_everything_can_be_done_by_keyboard(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the tables")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    first = page.locator(".card button").first
    expect(first).to_be_focused()
    name = first.inner_text()
    page.keyboard.press("Enter")
    expect(page.locator("#statement")).to_be_focused()
    expect(page.locator("#statement")).to_have_value(f"select * from {name} limit 10")
    page.keyboard.press("Control+A")
    page.keyboard.type(f"select station from {TABLE} order by station limit 2")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#rows td")).to_have_text(["Brest", re.compile("Leith|Newlyn")])
    page.locator("#leaves button").last.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#proof-title")).to_be_focused()
    expect(page.locator("#verdict")).to_contain_text("Proven by your browser")


def test_an_answer_says_its_route_and_a_wrong_question_what_is_wrong(page: Page) -> None:
    page.get_by_label("Statement").fill(f"select max(metres) - 9007199254740993 as n, '<b>' as b from {TABLE}")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#route")).to_contain_text(
        re.compile(r"1 row in \d+ ms; route: lambda, [\d,]+ bytes read; as of")
    )
    expect(page.locator("#rows td").last).to_have_text("<b>")
    page.get_by_label("Statement").fill("select 9007199254740993 as exact")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#rows td")).to_have_text(["9007199254740993"])
    page.get_by_label("Statement").fill("select nothing from nowhere.at_all")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#route.problem")).to_contain_text("nowhere.at_all")
    expect(page.locator("#rows")).to_be_hidden()


def test_notes_are_found_by_meaning_where_the_timeline_says_there_are_some(page: Page) -> None:
    expect(page.get_by_label("In", exact=True)).to_have_value(f"{NOTES}.body")
    page.get_by_label("For", exact=True).fill("how does the moon move the sea")
    page.keyboard.press("Enter")
    expect(page.locator("#hits tbody tr").first).to_contain_text("spring.md")
    expect(page.locator("#found")).to_contain_text(re.compile(r"2 rows in \d+ ms; of snapshot \d+"))


def test_a_link_opens_what_it_names(page: Page, running: tuple[EmbeddedCloud, Lake]) -> None:
    go(page, "#commit=1&tamper")
    expect(page.locator("#verdict")).to_contain_text("Not proven: the entry does not lead to the signed root")
    inserted = running[1].tables.history(TABLE)[-1].snapshot_id  # newest first
    index, _ = running[1].timeline.find(inserted)
    go(page, f"#sql={quote(f'select station, metres from {TABLE} order by station')}&as_of={index}")
    expect(page.locator("#rows td")).to_have_text(["Brest", "4.2", "Newlyn", "3.1"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_those_who_do_not_see_it_can_use_it(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.click(leaf(page, 1))
    expect(page.locator("#verdict")).to_contain_text("Proven by your browser")
    for summary in page.locator("summary").all():
        summary.click()
    page.get_by_label("Statement").fill(f"select * from {TABLE}")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#rows table")).to_be_visible()
    picture(page, f"whole-{scheme}.png")
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
    for status in ("#head", "#verdict", "#route", "#found"):
        expect(page.locator(status)).to_have_attribute("aria-live", re.compile("polite|assertive"))


def test_its_token_is_only_for_this_machines_own_name(running: tuple[EmbeddedCloud, Lake]) -> None:
    request = urllib.request.Request(f"{running[0].gateway.url}/_page/session", headers={"Host": "rebound.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)
