"""The proof inspector in a real browser, on proof files of a real node.

It shows valid files green at each level and forged ones red at the right level, by every input, with and without a
mouse, in light and dark.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enc.client import Client, Enclave, Identity, Proof
from enc.core.log.event import parse_event, wire_event, withhold
from enc.core.log.withheld import sign_withheld
from enc.core.primitives.types import Event
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.rights import ViewRights
from tests.core.world import START, person
from tests.dataview.page.browsing import NARROW, Visit
from tests.dataview.page.conftest import Visiting
from tests.dataview.page.proof_files import Made, evidence
from tests.dataview.served import PUBLIC as MANIFEST
from tests.dataview.served import serving as node_serving
from tests.dataview.serving.asking import PUBLIC, TOKEN, serving, tokens
from tests.dataview.serving.rows import EVENTS, event_row
from tests.node.served import NODE, Served

if TYPE_CHECKING:
    from playwright.sync_api import Page

PARTS = ["The event", "Its bundle", "The log", "The signed head", "Its status: active"]
BUNDLES = 6


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with node_serving() as node:
        yield node


@pytest.fixture(scope="module")
def enclave(node: Served) -> Iterator[Enclave]:
    """Yield an enclave with a log of six bundles and an open one."""
    owner = Identity(person("alice"))
    init = [{"identity": owner.hex, "state": "OWNER", "traits": []}]
    with Client(node.url, owner, pins=None) as client:
        enclave = client.create({**MANIFEST, "init": init})
        for n in range(BUNDLES):
            for post in range(n + 1):
                enclave.commit("post", f"post {n}.{post}: <b>hello</b>")
            node.clock.tick(6000)
            node.settle()
        enclave.commit("post", "not closed yet")
        yield enclave


@pytest.fixture(scope="module")
def events(enclave: Enclave) -> list[Any]:
    return [item.event for item in enclave.query()]


@pytest.fixture(scope="module")
def place(events: list[Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("inspected") / "serving.db")
    database = ServingDatabase(path)
    database.upsert(EVENTS, map(event_row, events), {events[0].enclave.hex(): len(events)}, index=["id"])
    database.close()
    return path


@pytest.fixture(scope="module")
def server(place: str, node: Served) -> Iterator[str]:
    with serving(place, {"events": PUBLIC}, node=node.url) as http:
        yield str(http.base_url)


@pytest.fixture(scope="module")
def proof(enclave: Enclave, events: list[Any]) -> Any:
    """Return the proof of an event in the middle of a bundle, as `enc prove` writes it."""
    fact = enclave.proof(events[12].id)
    assert fact.membership.s
    assert fact.anchor.inclusion.p
    return json.loads(Proof(enclave.id, enclave.sequencer(), fact).json())


def forged(proof: Any, change: Callable[[Any], None]) -> str:
    copy = json.loads(json.dumps(proof))
    change(copy)
    return json.dumps(copy, indent=2)


def flip(text: str) -> str:
    return text[:-1] + ("0" if text[-1] != "0" else "1")


# Display


def paste(tab: Visit, text: str) -> "Page":
    page = tab.go("#/proof")
    page.fill("#proof-text", text)
    page.click("text=Check the text")
    page.wait_for_selector(".report")
    return page


def verdict(page: "Page") -> str:
    return str(page.get_attribute(".report", "data-verdict"))


def chain(page: "Page") -> dict[str, str]:
    names, words = page.locator(".chain .name").all_inner_texts(), page.locator(".chain .word").all_inner_texts()
    return dict(zip(names, words, strict=True))


def steps(page: "Page") -> dict[str, str]:
    """Return each step's name and displayed verdict."""
    found = page.locator(".step").evaluate_all(
        "steps => steps.map(step => [step.dataset.step, step.querySelector('.badge').textContent])"
    )
    return dict(found)


def test_a_withheld_content_is_not_called_erased(visit: Visiting, server: str, proof: Any) -> None:
    """Only the statement of a node of the log counts."""

    def shown(event: Event) -> str:
        text = forged(proof, lambda file: file["event"].update(event=wire_event(event)))
        with visit(server) as tab:
            page = paste(tab, text)
            assert verdict(page) == "holds"
            assert "erased" not in page.inner_text("[data-step=hash]")
            return page.inner_text("[aria-labelledby=proof-about]")

    event = parse_event(json.dumps(proof["event"]["event"]))
    by_node, by_stranger = (
        withhold(event, sign_withheld(key, event.enclave, event.id, "court_order", START))
        for key in (NODE, person("bob"))
    )
    assert f"Its content is withheld by {NODE.public.hex()} since" in shown(by_node)
    assert "(court_order)" in shown(by_node)
    assert "Its content was erased." in shown(by_stranger)


def test_a_good_proof_is_green_at_each_level(visit: Visiting, server: str, proof: Any, scheme: str) -> None:
    with visit(server, scheme=scheme) as tab:
        page = paste(tab, json.dumps(proof))
        assert (tab.heading(), verdict(page)) == ("Proof inspector", "holds")
        assert page.inner_text("#verdict") == "The proof holds"
        assert chain(page) == dict.fromkeys(PARTS, "✓ holds")
        assert set(steps(page).values()) == {"✓ Holds"}
        assert len(steps(page)) == 16
        assert page.locator("[data-step=bundle] .levels > li").count() == len(proof["event"]["membership"]["s"])
        assert page.locator("[data-step=inclusion] .levels > li").count() == len(proof["event"]["anchor"]["p"])
        assert page.inner_text("[data-step=inclusion] .same").startswith("= ")
        assert "compare it with what you know" in page.inner_text(".not-shown")
        assert proof["sequencer"] in page.inner_text(".trust")
        assert tab.axe() == []
        tab.shot(f"proof-good-{scheme}")
        tab.check()


def test_each_level_says_what_stands_left_and_right(visit: Visiting, server: str, proof: Any) -> None:
    with visit(server) as tab:
        page = paste(tab, json.dumps(proof))
        index = proof["event"]["membership"]["ei"]
        for n, sibling in enumerate(proof["event"]["membership"]["s"]):
            left, right = page.locator("[data-step=bundle] .levels > li").nth(n).locator("code").all()
            beside = left if index >> n & 1 else right
            assert beside.get_attribute("title") == sibling
        tab.check()


FORGED: dict[str, tuple[Callable[[Any], Any], dict[str, str]]] = {
    "the content": (lambda e: e["event"]["event"].update(content="post 99"), {"hash": "The event"}),
    "the author's signature": (
        lambda e: e["event"]["event"].update(sig=flip(e["event"]["event"]["sig"])),
        {"author": "The event", "order": "The event"},
    ),
    "the sequencer's signature": (
        lambda e: e["event"]["event"].update(seq_sig=flip(e["event"]["event"]["seq_sig"])),
        {"order": "The event", "id": "The event"},
    ),
    "a sibling of the bundle": (lambda e: e["event"]["membership"]["s"].reverse(), {"bundle": "Its bundle"}),
    "the state after it": (
        lambda e: e["event"]["anchor"].update(state_hash=flip(e["event"]["anchor"]["state_hash"])),
        {"inclusion": "The log"},
    ),
    "the path": (lambda e: e["event"]["anchor"]["p"].reverse(), {"inclusion": "The log"}),
    "the head": (
        lambda e: e["event"]["anchor"]["sth"].update(sig=flip(e["event"]["anchor"]["sth"]["sig"])),
        {"head": "The signed head"},
    ),
    "the head's enclave": (
        lambda e: e["event"]["anchor"]["sth"].update(bound_sig=flip(e["event"]["anchor"]["sth"]["bound_sig"])),
        {"bound": "The signed head"},
    ),
    "the status": (lambda e: e["event"]["status"]["proof"].update(v="00"), {"status-state": "Its status: deleted"}),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_proof_is_red_at_the_right_level(visit: Visiting, server: str, proof: Any, name: str) -> None:
    change, broken = FORGED[name]
    with visit(server) as tab:
        page = paste(tab, forged(proof, change))
        assert verdict(page) == "fails"
        assert page.inner_text("#verdict") == "Nothing is proved: a step is broken"
        found = {step for step, word in steps(page).items() if word == "✗ Broken"}
        assert found == set(broken)
        assert {part for part, word in chain(page).items() if word == "✗ broken"} == set(broken.values())
        trouble = page.inner_text(f"[data-step={next(iter(broken))}] .trouble")
        assert "Why:" in trouble
        assert "What this means:" in trouble
        assert page.locator(".says").count() == 0
        tab.check()


def test_a_forged_proof_looks_so_in_both_colours(visit: Visiting, server: str, proof: Any, scheme: str) -> None:
    with visit(server, scheme=scheme) as tab:
        page = paste(tab, forged(proof, FORGED["the path"][0]))
        assert page.inner_text("[data-step=inclusion] .same").startswith("≠ another")
        assert page.locator("[data-step=leaf] .badge").inner_text() == "• Computed"
        assert tab.axe() == []
        tab.shot(f"proof-forged-{scheme}")
        tab.check()


def test_it_is_read_on_a_small_screen(visit: Visiting, server: str, proof: Any) -> None:
    with visit(server, size=NARROW) as tab:
        page = paste(tab, json.dumps(proof))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert tab.axe() == []
        tab.shot("proof-narrow")
        tab.check()


# Inputs


def test_a_file_is_opened(visit: Visiting, server: str, proof: Any, tmp_path: Path) -> None:
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    (tmp_path / "huge.json").write_bytes(b" " * ((8 << 20) + 1))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    with visit(server) as tab:
        page = tab.go("#/proof")
        page.set_input_files("#proof-file", tmp_path / "proof.json")
        page.wait_for_selector(".report[data-verdict=holds]")
        assert "From proof.json: proof of an event." in page.inner_text(".verdict")
        page.set_input_files("#proof-file", tmp_path / "huge.json")
        page.wait_for_selector(".report[data-verdict=unreadable]")
        assert "huge.json is over 8 MiB" in page.inner_text(".verdict")
        page.set_input_files("#proof-file", tmp_path / "picture.png")
        page.wait_for_selector("text=its bytes are not UTF-8 text")
        tab.check()


DROP = """([selector, name, text, isFile]) => {
    const data = new DataTransfer();
    if (isFile) data.items.add(new File([text], name, {type: "application/json"}));
    else data.setData("text/plain", text);
    for (const kind of ["dragenter", "dragover", "drop"]) {
        const event = new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true});
        document.querySelector(selector).dispatchEvent(event);
    }
}"""


def test_a_file_or_a_text_is_dropped_anywhere(visit: Visiting, server: str, proof: Any) -> None:
    with visit(server) as tab:
        page = tab.go("#/proof")
        page.evaluate(DROP, ["#proof-ask", "proof.json", json.dumps(proof), True])
        page.wait_for_selector(".report[data-verdict=holds]")
        page.evaluate(DROP, [".drop", "", forged(proof, FORGED["the content"][0]), False])
        page.wait_for_selector(".report[data-verdict=fails]")
        assert page.locator(".dragging").count() == 0
        tab.check()


def test_an_event_id_is_asked_of_the_server_and_checked_here(
    visit: Visiting, server: str, events: list[Any], proof: Any
) -> None:
    id_ = events[12].id.hex()
    with visit(server) as tab:
        page = tab.go("#/proof")
        assert not [each for each in tab.asked if each.startswith("/views/events")]
        page.fill("#proof-event", f"  {id_.upper()} ")
        page.click("text=Ask the server")
        page.wait_for_selector(".report[data-verdict=holds]")
        asked = [each for each in tab.asked if each.startswith("/views/events")]
        assert len(asked) == 1
        assert f"id={id_}" in asked[0]
        assert "verify=1" in asked[0]
        assert page.url.endswith(f"#/proof/{id_}")
        assert steps(page)["asked"] == "✓ Holds"
        assert page.input_value("#proof-event") == id_
        with page.expect_download() as saved:
            page.click("text=Save the proof as a file")
        kept = json.loads(Path(saved.value.path()).read_text())
        assert kept["event"]["event"] == proof["event"]["event"]
        tab.check()
    with visit(server) as tab:  # by its address alone
        page = tab.go(f"#/proof/{id_}")
        assert verdict(page) == "holds"
        assert tab.axe() == []
        tab.check()


def test_an_event_of_an_open_bundle_has_signatures_and_is_not_green(
    visit: Visiting, server: str, events: list[Any]
) -> None:
    with visit(server) as tab:
        page = tab.go(f"#/proof/{events[-1].id.hex()}")
        assert verdict(page) == "signatures"
        assert "EVENT_PENDING" in page.inner_text(".verdict")
        assert page.locator(".verdict.is-good").count() == 0
        assert tab.axe() == []
        tab.shot("proof-signatures")
        tab.check()


def test_a_server_that_answers_with_another_event_is_found_out(visit: Visiting, server: str, events: list[Any]) -> None:
    """The server's answer is verified like any file."""
    with visit(server) as tab:
        mine, other = events[12].id.hex(), events[13].id.hex()
        tab.page.route("**/views/events?*", lambda route: route.continue_(url=route.request.url.replace(mine, other)))
        page = tab.go(f"#/proof/{mine}")
        assert (verdict(page), steps(page)["asked"]) == ("fails", "✗ Broken")
        tab.check()


ROUND_TRIP = "async () => { await (await fetch('/health')).text(); }"
"""A round trip to the server: answers requested before have arrived when it returns."""


def test_a_late_answer_is_not_taken_for_the_verdict_of_what_was_checked_since(
    visit: Visiting, server: str, events: list[Any], proof: Any
) -> None:
    held = list[Any]()
    with visit(server) as tab:
        page = tab.go(f"#/proof/{events[12].id.hex()}")
        assert verdict(page) == "holds"
        page.route("**/views/events?*", lambda route: held.append(route))
        with page.expect_request("**/views/events?*"):
            page.click("text=Ask the server")
        assert page.locator(".report").count() == 0  # the previous report is gone
        page.fill("#proof-text", forged(proof, FORGED["the content"][0]))
        page.click("text=Check the text")
        page.wait_for_selector(".report[data-verdict=fails]")
        with page.expect_response("**/views/events?*"):
            held[0].continue_()
        page.evaluate(ROUND_TRIP)
        assert verdict(page) == "fails"
        tab.check()


def test_a_fault_of_the_page_leaves_no_former_verdict(visit: Visiting, server: str, proof: Any) -> None:
    with visit(server) as tab:
        page = paste(tab, json.dumps(proof))
        assert verdict(page) == "holds"
        page.evaluate("Uint8Array.prototype.set = () => { throw new RangeError('out of memory'); }; 0")
        page.fill("#proof-text", json.dumps(proof))
        page.click("text=Check the text")
        page.wait_for_selector(".report[data-verdict=unsupported]")
        assert "an error in this page" in page.inner_text(".verdict")
        assert page.locator(".is-good").count() == 0
        assert ["out of memory" in each for each in tab.errors] == [True]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"rows": [], "proofs": []}, "No event with this id is served here"),
        ({"rows": [{}], "proofs": []}, "no proof of it"),
        (
            {"rows": [{}], "proofs": [{"shows": "nothing", "why": "it does not check", "proof": None}]},
            "it does not check",
        ),
        ({"rows": 5}, "not one of its kind"),
        ([], "not one of its kind"),
        ("{", "cannot be read"),
        ({"rows": [{}], "proofs": [{"proof": {"format": "enc-proof"}}]}, "missing"),
    ],
    ids=range(7),
)
def test_whatever_the_server_says_there_is_a_sentence(visit: Visiting, server: str, answer: Any, words: str) -> None:
    body = answer if isinstance(answer, str) else json.dumps(answer)
    with visit(server) as tab:
        tab.page.route("**/views/events?*", lambda route: route.fulfill(body=body, content_type="application/json"))
        page = tab.go(f"#/proof/{'ab' * 32}")
        assert verdict(page) == "unreadable"
        assert words in page.inner_text(".verdict")
        tab.check()


def test_who_may_not_read_events_is_told_so_and_a_token_opens_them(
    visit: Visiting, place: str, node: Served, events: list[Any], tmp_path: Path
) -> None:
    id_ = events[3].id.hex()
    rights = {"events": ViewRights(tokens=("analyst",))}
    with serving(place, rights, node=node.url, tokens=tokens(tmp_path)) as http, visit(str(http.base_url)) as tab:
        page = tab.go(f"#/proof/{id_}")
        assert "You may not read events here" in page.inner_text(".verdict")
        page.evaluate("token => sessionStorage.setItem('enc-token', token)", TOKEN)
        page.reload()
        page = tab.ready()
        assert verdict(page) == "holds"
        assert [each for each in tab.errors if "401" not in each] == []
        assert tab.others == []


@pytest.mark.parametrize("id_", ["xyz", "ab" * 31, "%2e%2e", "ab" * 33])
def test_what_is_no_event_id_is_not_asked(visit: Visiting, server: str, id_: str) -> None:
    with visit(server) as tab:
        page = tab.go(f"#/proof/{id_}")
        assert "An event id is 64 hex characters" in page.inner_text(".verdict")
        assert not [each for each in tab.asked if each.startswith("/views")]
        tab.check()


def test_a_server_that_is_gone_is_said(visit: Visiting, server: str) -> None:
    with visit(server) as tab:
        page = tab.go("#/proof")
        tab.page.route("**/views/**", lambda route: route.abort())
        page.fill("#proof-event", "ab" * 32)
        page.keyboard.press("Enter")
        page.wait_for_selector("text=The server does not answer")
        assert tab.others == []


# The trusted sequencer


def test_the_expected_key_is_compared(visit: Visiting, server: str, proof: Any) -> None:
    with visit(server) as tab:
        page = paste(tab, json.dumps(proof))
        assert "enter that above" in page.inner_text(".trust")
        page.fill("#proof-key", "00" * 32)
        page.keyboard.press("Enter")
        page.wait_for_selector(".report[data-verdict=fails]")
        assert steps(page)["pin"] == "✗ Broken"
        assert f"signed by {proof['sequencer']}, not by {'00' * 32}" in page.inner_text(".verdict")
        page.fill("#proof-key", proof["sequencer"])
        page.keyboard.press("Tab")
        page.wait_for_selector(".report[data-verdict=holds]")
        assert "the key that you entered" in page.inner_text(".trust")
        page.evaluate("location.hash = '#/proof/zz'")  # the input survives while the page is open
        page.wait_for_selector("text=An event id is 64 hex")
        assert page.input_value("#proof-key") == proof["sequencer"]
        tab.check()


# Evidence, and files that cannot be checked


@pytest.mark.parametrize(
    ("name", "expected", "title"),
    [
        ("fork, attested", "convicts", "The evidence convicts the sequencer"),
        ("unconnected", "open", "The evidence convicts nobody"),
        ("altered", "finding", "The finding holds; the evidence convicts nobody"),
        ("no fork", "fails", "Nothing is proved: a step is broken"),
    ],
)
def test_evidence_is_judged(visit: Visiting, server: str, name: str, expected: str, title: str) -> None:
    with visit(server) as tab:
        page = paste(tab, evidence()[name].decode())
        assert (verdict(page), page.inner_text("#verdict")) == (expected, title)
        assert tab.axe() == []
        tab.shot(f"proof-evidence-{expected}")
        tab.check()


def test_evidence_of_a_log_is_named_and_not_judged(visit: Visiting, server: str) -> None:
    wire = json.loads(evidence()["fork"]) | {"kind": "log"}
    with visit(server) as tab:
        page = paste(tab, json.dumps(wire))
        assert verdict(page) == "unsupported"
        assert "kind “log”" in page.inner_text(".verdict")
        assert page.locator(".is-good").count() == 0
        tab.check()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "It is empty."),
        ("hello", "not JSON"),
        ("[" * 100_000, "nested deeper than 64 levels"),
        ("{}", "it has no “format”"),
        ('{"format": "enc-proof", "version": 2}', "version: expected one of 1"),
        ('{"format": "enc-proof", "version": 1}', "enclave: missing"),
        ('{"format": "<b>x</b>"}', "“<b>x</b>”, is unknown to this page"),
    ],
    ids=range(7),
)
def test_bad_input_gets_a_sentence(visit: Visiting, server: str, text: str, words: str) -> None:
    with visit(server) as tab:
        page = paste(tab, text)
        assert verdict(page) in ("unreadable", "unsupported")
        assert words in page.inner_text(".verdict")
        tab.check()


def test_what_somebody_wrote_is_shown_as_text(visit: Visiting, server: str, proof: Any) -> None:
    with visit(server) as tab:
        page = paste(tab, json.dumps(proof))
        assert page.inner_text(".report pre") == proof["event"]["event"]["content"]
        assert "<b>" in page.inner_text(".report pre")
        tab.check()


def test_a_type_neither_turns_round_nor_floods_what_is_proved(visit: Visiting, server: str) -> None:
    made = Made()
    turned, flood = made.say("hello", "note\u202e\n"), made.say("hello", "ab" * 500_000)
    made.close()
    with visit(server) as tab:
        page = paste(tab, made.proof(made.fact(turned, status=False)).decode())
        assert verdict(page) == "holds"
        told = page.inner_text(".report")
        assert "an event of type note\\u{202e}\\u{a} for enclave" in told
        assert "\u202e" not in told
        page = paste(tab, made.proof(made.fact(flood, status=False)).decode())
        assert verdict(page) == "holds"
        assert len(page.inner_text(".report")) < 20_000
        tab.check()


# By keyboard


def test_it_works_by_keyboard_alone(visit: Visiting, server: str, proof: Any) -> None:
    with visit(server) as tab:
        page = tab.go("#/proof")
        page.focus("#proof-file")
        page.keyboard.press("Tab")
        assert focused(page) == "proof-text"
        page.keyboard.insert_text(json.dumps(proof))
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(".report[data-verdict=holds]")
        assert focused(page) == "verdict"
        assert page.inner_text("#said") == "The proof holds"
        while page.evaluate("!document.activeElement.closest('.chain')"):
            page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert focused(page) == "proof-part-1"
        while page.evaluate("document.activeElement.textContent !== 'Inputs of this check: Place in its bundle'"):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.locator("[data-step=bundle] .inputs[open]").count() == 1
        assert proof["event"]["anchor"]["events_root"] in page.inner_text("[data-step=bundle] .inputs")
        tab.check()


def focused(page: "Page") -> str:
    return str(page.evaluate("document.activeElement.id"))
