"""Every page in a real browser, over real rows: what it shows, in light and dark, wide and narrow, by keyboard."""

import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from msgspec.structs import replace

from enc.core.primitives.types import Event
from enc.core.trees.bundle import BundleConfig, closes_after, closes_before, open_bundle
from tests.core.world import pub
from tests.dataview.logs import Log
from tests.dataview.page import filled
from tests.dataview.page.browsing import NARROW, WIDE, Visit
from tests.dataview.page.conftest import Visiting
from tests.dataview.page.filled import HOSTILE, PUBLIC, PUBLISHED, TYPES, key_of
from tests.dataview.serving.asking import TOKEN, ViewRights, serving, tokens

VIEWS = (*PUBLISHED, "pipeline")
ALL = dict.fromkeys(VIEWS, PUBLIC)


class Site:
    """A server over a full database, and the real log in it."""

    def __init__(self, http: httpx.Client, log: Log, place: str) -> None:
        self.http, self.log, self.url, self.place = http, log, str(http.base_url), place


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = str(tmp_path_factory.mktemp("site") / "serving.db")
    log = filled.fill(place)
    with serving(place, ALL) as http:
        yield Site(http, log, place)


@pytest.fixture
def tab(visit: Visiting, site: Site, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Open a tab on the full site; errors in it fail the test."""
    with visit(site.url, name=request.node.name) as found:
        yield found
        found.check()


def rows(visit: Visit, caption: str) -> list[list[str]]:
    """Return a table's cells as text."""
    lines = visit.page.locator(f"table:has(caption:text-is('{caption}')) tbody tr")
    return [[" ".join(text.split()) for text in line.locator("th, td").all_inner_texts()] for line in lines.all()]


PLACES = {
    "overview": ("#/", "Overview", ["Activity", "Deliveries", "Pipeline", "Gaps", "91,990", "INVALID_SIGNATURE"]),
    "enclaves": ("#/enclaves", "Enclaves", ["Household", "active", "chat"]),
    "enclave": ("#/enclaves/{id}", "Registry", ["Manifest", "Sequencers", "version 2"]),
    "events": ("#/enclaves/{id}?tab=events", "Registry", ["message 9 of small", HOSTILE]),
    "members": ("#/enclaves/{id}?tab=members", "Registry", ["owner", "MEMBER"]),
    "bundles": ("#/enclaves/{id}?tab=bundles", "Registry", ["closed bundle"]),
    "views": ("#/views", "Views", ["Public posts with their current content.", "anybody"]),
    "view": ("#/views/events", "events", ["message", "19 columns"]),
    "registry": ("#/registry", "Registry", ["https://node.example:7700"]),
    "registry-enclaves": ("#/registry?of=enclaves", "Registry", ["Board minutes"]),
    "registry-identities": ("#/registry?of=identities", "Registry", ["personal"]),
    "proof": ("#/proof", "", []),
    "nowhere": ("#/nowhere", "Nothing here", ["There is no page at this address."]),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_page(tab: Visit, site: Site, place: str) -> None:
    address, heading, texts = PLACES[place]
    page = tab.go(address.format(id=site.log.enclave))
    assert page.locator("h1").count() == 1
    assert heading in tab.heading() or place in ("enclave", "events", "members", "bundles")
    inside = page.inner_text("main")
    for text in texts:
        assert text in inside
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for size, name in ((WIDE, "wide"), (NARROW, "narrow")):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name
            tab.shot(f"{place}-{scheme}-{name}")
        page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
        assert (tab.axe() if scheme == "light" else tab.axe("color-contrast")) == []  # the rest is the same in the dark
    assert page.title().endswith("ENC DataView")


# The overview


def test_the_overviews_figures_are_those_of_the_views(tab: Visit, site: Site) -> None:
    page = tab.go("#/")
    tiles = dict(
        zip(page.locator(".tile dt").all_inner_texts(), page.locator(".tile b").all_inner_texts(), strict=True)
    )
    assert tiles == {"Events": "91,990", "Enclaves": "120", "Members": "604", "Refused": "19", "Events behind": "8"}
    assert page.inner_text(".tile:has(dt:text-is('Refused')) span") == "< 0.1 % of all events"
    assert [line[0] for line in rows(tab, "Events by type")] == list(TYPES)
    sources = rows(tab, "Sources")
    assert [line[1:3] for line in sources] == [["61,904", "0"], ["24,011", "14"], ["6,075", "3"], ["0", "2"]]
    assert [line[-1] for line in sources] == ["✓ all accepted", "! some refused", "! some refused", "✗ all refused"]
    assert rows(tab, "How far views are behind")[0][0] == "timeline"
    assert "It is running" in page.inner_text("main")


def test_a_chart_says_the_same_as_its_table(tab: Visit, site: Site) -> None:
    from playwright.sync_api import expect

    page = tab.go("#/")
    chart = page.locator("section:has(h2:text-is('Activity'))")
    asked = {"kind": "hour", "order": "-name", "limit": "168"}
    expected = [f"{row['events']:,}" for row in site.http.get("/views/figures", params=asked).json()["rows"]][::-1]
    chart.locator("summary").click()
    assert chart.locator("tbody td").all_inner_texts() == expected
    expect(chart.locator("rect.bar")).to_have_count(168)
    chart.get_by_role("button", name="24 hours").click()
    chart.locator("summary").click()
    assert chart.locator("tbody td").all_inner_texts() == expected[-24:]
    chart.get_by_role("button", name="30 days").click()
    expect(chart.locator("rect.bar")).to_have_count(30)
    assert chart.get_by_role("button", name="30 days").get_attribute("aria-pressed") == "true"
    assert "Events per day" in (chart.locator("svg").get_attribute("aria-label") or "")


@pytest.fixture
def another(tmp_path: Path) -> Iterator[filled.Filling]:
    """Serve a separate full database, to add rows to."""
    place = str(tmp_path / "serving.db")
    filled.fill(place)
    filling = filled.Filling(place, {})
    yield filling
    filling.close()


def test_events_that_are_dated_in_the_future_do_not_empty_the_charts(
    visit: Visiting, site: Site, another: filled.Filling, tmp_path: Path
) -> None:
    """More such hours than a chart requests, and one beyond the range of a browser's dates."""
    names = [f"{year}-01-01T{hour:02}:00:00Z" for year in range(3000, 3040) for hour in range(24)]
    another.put("figures", [filled._figure("hour", name, 1, 0, 0, filled.END) for name in (*names, "+287396-01-01")])
    chart = "section:has(h2:text-is('Activity')) figure"
    with serving(str(tmp_path / "serving.db"), ALL) as http:
        totals = []
        for url in (site.url, str(http.base_url)):
            with visit(url) as tab:
                totals.append(tab.go("#/").get_attribute(chart, "data-total"))
                tab.check()
    assert totals[0] == totals[1]
    assert int(totals[0] or 0) > 0


def test_the_pipeline_was_heard_of_when_any_of_its_parts_was(
    visit: Visiting, another: filled.Filling, tmp_path: Path
) -> None:
    now = time.time_ns() // 1000
    told = {"derive": now - 50 * filled.HOUR, "ingest": now - 3 * filled.HOUR, "views": now - 50 * filled.HOUR}
    another.put("pipeline", [{"part": part, "told_at": at} for part, at in told.items()], {})
    with serving(str(tmp_path / "serving.db"), ALL) as http, visit(str(http.base_url)) as tab:
        assert "It last reported 3 h ago" in tab.go("#/").inner_text("main")
        tab.check()


LABELS_JS = """async () => {
  const { bars } = await import("/page/js/chart.js");
  const { duration } = await import("/page/js/format.js");
  const made = bars("Long", [{ label: "a", tick: "a", value: 999_000 }], { unit: "ms", show: duration });
  document.querySelector("main").append(made);
  await new Promise((done) => new MutationObserver(done).observe(made, { childList: true, subtree: true }));
  const left = made.querySelector("svg").getBoundingClientRect().left;
  const axis = [...made.querySelectorAll("text[text-anchor=end]")];
  return axis.map((each) => [each.textContent, each.getBoundingClientRect().left >= left]);
}"""


def test_the_longest_labels_of_an_axis_are_not_cut(tab: Visit) -> None:
    assert tab.go("#/").evaluate(LABELS_JS) == [["0 ms", True], ["8.3 min", True], ["17 min", True]]


# Enclaves


def test_enclaves_page_by_page(tab: Visit, site: Site) -> None:
    page = tab.go("#/enclaves")
    seen = [line[1] for line in rows(tab, "Enclaves")]
    assert len(seen) == 50
    tab.click("text=Next page")
    seen += [line[1] for line in rows(tab, "Enclaves")]
    tab.click("text=Next page")
    seen += [line[1] for line in rows(tab, "Enclaves")]
    assert len(set(seen)) == len(seen) == filled.ENCLAVES
    assert page.locator("text=Next page").count() == 0
    tab.click("text=Back")
    assert [line[1] for line in rows(tab, "Enclaves")] == seen[50:100]
    tab.click("text=First page")
    assert [line[1] for line in rows(tab, "Enclaves")] == seen[:50]


FOUND = [
    ("id", key_of("enclave 7")[:6], 1),
    ("creator", key_of("person 7")[:20], 1),
    ("app", "chat", 30),
    ("owner", pub("alice")[:12], 1),
    ("member", key_of("member 3"), 1),
    ("id", "no such", 0),
]


def test_enclaves_are_found(tab: Visit) -> None:
    page = tab.go("#/enclaves")
    for by, what, count in FOUND:
        page.select_option("#by", by)
        page.fill("#q", what)
        tab.click("button:text-is('Search')")
        assert len(rows(tab, "Enclaves")) == count, by
        assert count or "No enclave matches this search." in page.inner_text("main")
        assert page.input_value("#q") == what
    tab.turn(f"#/enclaves?by=constructor&q={FOUND[0][1]}")  # an unknown search falls back to the id
    assert len(rows(tab, "Enclaves")) == 1


def test_events_of_an_enclave_are_filtered_and_shown_as_text(tab: Visit, site: Site) -> None:
    page = tab.go(f"#/enclaves/{site.log.enclave}?tab=events")
    assert len(rows(tab, "Events")) == len(site.log.events)
    assert page.locator("main img, main script").count() == 0
    page.fill("#type", "Move")
    tab.click("button:text-is('Filter')")
    moves = [event for event in site.log.events if event.type == "Move"]
    assert [line[0] for line in rows(tab, "Events")] == [str(event.seq) for event in reversed(moves)]
    page.fill("#author", pub("carol"))
    tab.click("button:text-is('Filter')")
    assert len(rows(tab, "Events")) == 1
    last = moves[-1]
    assert page.locator("table a").get_attribute("href") == f"#/proof/{last.id.hex()}"


def test_a_withheld_content_is_not_called_erased(
    visit: Visiting, another: filled.Filling, site: Site, tmp_path: Path
) -> None:
    statement = {"reason": "court_order", "node": pub("node"), "sig": "00" * 64}
    rows_ = filled._events(site.log)
    held, far, gone = ({**row, "content": None} for row in rows_[13:16])
    held["withheld"], far["withheld"] = {**statement, "ts": 1_795_000_000_000}, {**statement, "ts": (1 << 53) - 1}
    another.put("events", [held, far, gone])
    with serving(str(tmp_path / "serving.db"), ALL) as http, visit(str(http.base_url)) as tab:
        tab.go(f"#/enclaves/{site.log.enclave}?tab=events")
        shown = {line[0]: line[-1] for line in rows(tab, "Events")}
        tab.check()
    assert [shown[str(seq)] for seq in (13, 14, 15)] == [
        "withheld by the node since 2026-11-18: court_order",
        "withheld by the node since 9999-12-31: court_order",
        "erased, or missing without a statement",
    ]


def test_members_of_an_enclave_page_by_page(tab: Visit, site: Site) -> None:
    tab.go(f"#/enclaves/{site.log.enclave}?tab=members")
    first = rows(tab, "Members")
    tab.click("text=Next page")
    assert len(first) == 50
    assert rows(tab, "Members")
    assert not {line[0] for line in first} & {line[0] for line in rows(tab, "Members")}


BUNDLES = """
async ([config, events]) => {
  const { Bundles } = await import("/page/js/bundles.js");
  const made = new Bundles(config);
  for (const event of events) if (!made.take(event)) return null;
  return [...made.closed.map(each => [each.first, each.count]), made.open ? [made.open.first, made.open.count] : null];
}
"""


def test_bundles_end_where_the_protocol_says(tab: Visit, site: Site) -> None:
    tab.go("#/nowhere")
    here = site.log.events
    other = [replace(each, sequencer=bytes(32)) if each.seq >= 20 else each for each in here]
    moved = [replace(each, type="Migrate") if each.seq in (9, 30) else each for each in other]
    for events in (here, other, moved):
        for size, timeout in ((256, 5000), (4, 5000), (1, 1), (7, 30), (40, 3)):
            check_bundles(tab, events, size, timeout)


def check_bundles(tab: Visit, log: list[Event], size: int, timeout: int) -> None:
    config, expected, open_ = BundleConfig(size, timeout), list[list[int] | None](), None
    for event in log:
        if open_ is not None and closes_before(open_, event, config):
            expected.append([open_.first_seq, open_.count])
            open_ = None
        open_ = open_bundle(event) if open_ is None else open_.add(event)
        if closes_after(open_, event, config):
            expected.append([open_.first_seq, open_.count])
            open_ = None
    expected.append([open_.first_seq, open_.count] if open_ is not None else None)
    events = [
        {"seq": each.seq, "ms": each.timestamp, "type": each.type, "sequencer": each.sequencer.hex()} for each in log
    ]
    assert tab.page.evaluate(BUNDLES, [{"size": size, "timeout": timeout}, events]) == expected
    assert tab.page.evaluate(BUNDLES, [{"size": size, "timeout": timeout}, events[1:]]) is None


# Views


def test_a_view_is_filtered_ordered_and_unfiltered(tab: Visit, site: Site) -> None:
    page = tab.go("#/views/events")
    page.select_option("#column", "type")
    page.select_option("#op", "prefix")
    page.fill("#value", "Mo")
    tab.click("button:text-is('Add filter')")
    page.select_option("#order", "seq")
    page.select_option("#way", "-")
    tab.click("button:text-is('Order')")
    asked = {"type.prefix": "Mo", "order": "-seq"}
    expected = [str(row["seq"]) for row in site.http.get("/views/events", params=asked).json()["rows"]]
    assert [line[1] for line in rows(tab, "Rows of events")] == expected
    tab.click("button.chip")
    assert len(rows(tab, "Rows of events")) == len(site.log.events)


def test_a_filter_for_an_empty_text_is_one(tab: Visit) -> None:
    page = tab.go("#/views/events")
    page.select_option("#column", "type")
    tab.click("button:text-is('Add filter')")
    assert page.locator("button.chip").inner_text().startswith("type is")
    assert "No row matches these filters." in page.inner_text("main")


def test_what_is_wrong_with_a_filter_is_said(visit: Visiting, site: Site) -> None:
    with visit(site.url) as tab:
        tab.go("#/views/events?seq=many")
        assert "seq: expected an integer" in tab.page.inner_text("main")
        assert tab.page.locator("button.chip").count() == 1
        assert tab.axe() == []


def test_downloads_are_what_the_api_gives(tab: Visit, site: Site, tmp_path: Path) -> None:
    tab.go("#/views/members?state=PENDING")
    for label in ("CSV", "JSON", "Arrow"):
        check_download(tab, site, tmp_path, label)


def check_download(tab: Visit, site: Site, tmp_path: Path, label: str) -> None:
    page = tab.page
    with page.expect_download() as waiting:
        page.get_by_role("button", name=label, exact=True).click()
    format_ = label.lower()
    assert waiting.value.suggested_filename == f"members.{format_}"
    waiting.value.save_as(tmp_path / "file")
    got = (tmp_path / "file").read_bytes()
    expected = site.http.get("/views/members", params={"state": "PENDING", "limit": "10000"}).json()["rows"]
    if format_ == "csv":
        assert [row["identity"] for row in csv.DictReader(io.StringIO(got.decode()))] == [
            row["identity"] for row in expected
        ]
    elif format_ == "json":
        assert json.loads(got)["rows"] == expected
    else:
        assert pa.ipc.open_stream(got).read_all().column("identity").to_pylist() == [
            row["identity"] for row in expected
        ]
    page.wait_for_selector("text=Saved.")


def test_a_large_view_is_downloaded_in_parts(tab: Visit, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.dataview.serving.handlers.MAX_PAGE", 20_000)
    page = tab.go("#/views/registry_enclaves")
    with page.expect_download() as first:
        page.get_by_role("button", name="CSV", exact=True).click()
    with page.expect_download() as second:
        page.get_by_role("button", name="Save the next part").click()
    assert (first.value.suggested_filename, second.value.suggested_filename) == (
        "registry_enclaves.csv",
        "registry_enclaves-2.csv",
    )
    names = []
    for part in (first, second):
        names += [row["enclave_id"] for row in csv.DictReader(io.StringIO(Path(part.value.path()).read_text()))]
    asked = site.http.get("/views/registry_enclaves?limit=10000&select=enclave_id").json()["rows"]
    assert names == [row["enclave_id"] for row in asked][: len(names)]
    assert len(names) > 50


# Tokens


def test_a_token_opens_what_is_its_own_and_stays_in_the_tab(visit: Visiting, site: Site, tmp_path: Path) -> None:
    """`timeline` is public; the other views need the analyst's token."""
    rights = {name: ViewRights(tokens=("analyst",)) for name in VIEWS} | {"timeline": PUBLIC}
    with serving(site.place, rights, tokens=tokens(tmp_path)) as http, visit(str(http.base_url)) as tab:
        page = tab.go("#/views")
        assert [line[0] for line in rows(tab, "Views")] == ["timeline"]
        tab.go("#/enclaves")
        assert "a token may give access to it" in page.inner_text("main")
        page.get_by_role("button", name="Reading without a token").click()
        assert tab.axe() == []
        page.keyboard.type("nobody's-token")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog >> text=unknown token")
        tab.errors.clear()  # the browser logs each 401
        page.fill("#token-text", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Reading with a token")
        tab.ready()
        page.wait_for_selector("table")
        assert len(rows(tab, "Enclaves")) == 50
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        assert page.evaluate("Object.values(sessionStorage)") == [TOKEN]
        assert not any(TOKEN in asked for asked in tab.asked)
        page.get_by_role("button", name="Reading with a token").click()
        page.get_by_role("button", name="Remove the token").click()
        page.wait_for_selector("text=a token may give access to it")
        assert page.evaluate("sessionStorage.length") == 0
        tab.check()


DATA = [name for name in PLACES if name not in ("nowhere", "proof")]


def test_missing_rights_are_said_on_every_page(visit: Visiting, tmp_path: Path, site: Site) -> None:
    where = str(tmp_path / "serving.db")
    filled.empty(where)
    with serving(where, {}) as http, visit(str(http.base_url)) as tab:
        page = tab.go("#/nowhere")
        for place in DATA:
            tab.turn(PLACES[place][0].format(id=site.log.enclave))
            assert "public" in page.inner_text("main .notice"), place
        tab.check()  # no request was rejected


def test_an_empty_database_is_said_to_be_empty(visit: Visiting, tmp_path: Path, site: Site) -> None:
    where = str(tmp_path / "serving.db")
    filled.empty(where)
    expected = {"views": "Public posts with their current content.", "view": "This view has no rows yet."}
    with serving(where, ALL) as http, visit(str(http.base_url)) as tab:
        page = tab.go("#/nowhere")
        for place in DATA:
            tab.turn(PLACES[place][0].format(id=site.log.enclave))
            assert expected.get(place, "No ") in page.inner_text("main"), place
        tab.turn("#/")
        assert tab.axe() == []
        tab.check()


def test_a_view_that_is_missing_leaves_the_rest(visit: Visiting, site: Site) -> None:
    """A missing view looks like one that may not be read."""
    names = ("figures", "heads", "pipeline", "refusals", "roles", "enclaves")
    for name in names:
        rights = {each: PUBLIC for each in VIEWS if each != name}
        with serving(site.place, rights) as http, visit(str(http.base_url)) as tab:
            page = tab.go("#/")
            assert name == "enclaves" or f"The view “{name}” is not published yet" in page.inner_text("main")
            tab.turn("#/enclaves")
            assert len(rows(tab, "Enclaves")) == 50
            tab.check()


def test_a_server_that_goes_away(visit: Visiting, site: Site) -> None:
    with serving(site.place, ALL) as http:
        stack = visit(str(http.base_url))
        tab = stack.__enter__()
        tab.go("#/")
        tab.go("#/enclaves")
    try:
        page = tab.click("#nav >> text=Overview")
        assert "The server does not answer" in page.inner_text("[role=alert]")
        assert page.get_by_role("button", name="Try again").is_visible()
        page = tab.click("#nav >> text=Views")
        assert "The server does not answer" in page.inner_text("[role=alert]")
    finally:
        stack.__exit__(None, None, None)


# By keyboard, and in the reader's colours


def test_all_of_it_can_be_reached_by_keyboard(tab: Visit) -> None:
    page = tab.go("#/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.locator(".skip").bounding_box()["y"] >= 0  # type: ignore[index]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.url.endswith("#/")
    page.locator(".brand").focus()
    for name in ("Overview", "Enclaves", "Views", "Registry", "Proofs"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == name
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.locator("#nav >> text=Views").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text-is('Views')")
    tab.ready()
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.get_attribute("#nav [aria-current]", "href") == "#/views"
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('table') !== null")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text-is('activity_hourly'), h1:text-is('enclaves')")


SCROLLED = """
() => new Promise(done => {
  const region = document.activeElement;
  if (region.scrollLeft > 0) done(true);
  region.addEventListener("scroll", () => done(region.scrollLeft > 0), { once: true });
})
"""


def test_what_is_wider_than_its_place_is_scrolled_by_arrows(visit: Visiting, site: Site) -> None:
    with visit(site.url, size=NARROW) as tab:
        page = tab.go("#/enclaves")
        region = page.get_by_role("group", name="Enclaves")
        assert region.get_attribute("tabindex") == "0"  # some browsers need it for focus
        region.focus()
        page.keyboard.press("ArrowRight")
        assert page.evaluate(SCROLLED)
        tab.check()


def test_colours_follow_the_system_or_the_reader(visit: Visiting, site: Site) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    with visit(site.url, scheme="light") as tab:
        page = tab.go("#/views")
        light = page.evaluate(colour)
        page.emulate_media(color_scheme="dark")
        dark = page.evaluate(colour)
        assert light != dark
        page.locator("#theme").focus()
        page.keyboard.press("ArrowDown")
        assert (page.input_value("#theme"), page.evaluate(colour)) == ("light", light)
        page.keyboard.press("ArrowDown")
        page.emulate_media(color_scheme="light")
        assert page.evaluate(colour) == dark
        page.reload()
        tab.ready()
        assert (page.input_value("#theme"), page.evaluate(colour)) == ("dark", dark)
        tab.check()
