"""The browser computes the same as Python: the worked examples, and the same verdict, in the same words, on every proof
file and on thousands of broken ones.
"""

import base64
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from enc.cli.enclave.proofs import _check
from enc.core.errors import InvalidProof
from enc.core.log.event import parse_event, withheld_by
from tests.core.vectors import EXTERNAL, KEYS, load
from tests.dataview.page.bent_proofs import bent
from tests.dataview.page.browsing import visiting
from tests.dataview.page.mutations import mutated
from tests.dataview.page.proof_files import Made, evidence, log_of, proofs, receipt
from tests.dataview.serving.asking import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MODULES = "bytes json cbor hashing schnorr commit event bundle ct smt head inspect".split()
SAMPLE = 120
"""Number of mutations tried per file, out of some hundreds."""
REFUSED = ("fails", "unreadable")


@pytest.fixture(scope="module")
def page(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Iterator["Page"]:
    """Yield a tab in which the modules are loaded, by their names, in `m`."""
    place = str(tmp_path_factory.mktemp("inspector") / "serving.db")
    with serving(place, {}) as http, visiting(browser, str(http.base_url)) as tab:
        page = tab.go("#/proof")
        page.evaluate(
            "async names => { window.m = {};"
            " for (const name of names) window.m[name] = await import(`/page/js/proof/${name}.js`); }",
            MODULES,
        )
        page.evaluate("window.un = text => m.bytes.unhex(text, text.length / 2, 'x'); window.hex = m.bytes.hex; 0")
        yield page
        tab.check()


# Worked examples


def test_commits(page: "Page") -> None:
    examples = load("commits")
    found = page.evaluate(
        """examples => examples.map(example => {
            const commit = {...example, enclave: un(example.enclave), from: un(example.from), alg: "schnorr",
              contentHash: m.hashing.contentHash(example.content), hash: un(example.hash), sig: un(example.sig)};
            const ecdsa = example.sig_ecdsa && {...commit, alg: "ecdsa", sig: un(example.sig_ecdsa)};
            return [hex(m.hashing.commitHash(example.enc_v, commit)), m.commit.wrongHash(commit, example.enc_v),
              m.commit.wrongAuthor(commit), ecdsa ? m.commit.wrongAuthor(ecdsa) : null,
              commit.type === "Manifest" ? example.enc_v : m.commit.versionOf(commit)];
        })""",
        examples,
    )
    assert found == [[each["hash"], None, None, None, each["enc_v"]] for each in examples]
    assert {each["enc_v"] for each in examples} == {1, 2}
    assert any("sig_ecdsa" in each for each in examples)


def test_enclave_ids(page: "Page") -> None:
    examples = load("enclave_ids")
    found = page.evaluate(
        """examples => examples.map(each => hex(m.hashing.enclaveId(each.enc_v,
            {from: un(each.from), contentHash: m.hashing.contentHash(each.content), tags: each.tags})))""",
        examples,
    )
    assert found == [each["enclave"] for each in examples]


def test_events_and_whole_logs(page: "Page") -> None:
    examples = load("events")
    found = page.evaluate(
        """examples => examples.map(each => {
            const [sequencer, sig, seqSig, id] = [each.sequencer, each.sig, each.seq_sig, each.id].map(un);
            const event = {...each, sequencer, sig, seqSig, id};
            return [m.event.wrongOrder(event), m.event.wrongId(event)];
        })""",
        examples,
    )
    assert found == [[None, None]] * len(examples)
    for name, enc_v in (("log", 2), ("log_moved", 2), ("log_v1", 1), ("group_log", 2)):
        events = load(name)["events"]
        wrong = page.evaluate(
            """([events, version]) => events.map(wire => {
                const event = m.event.readEvent(m.event.eventForm(m.json.parseJson(wire)));
                return [m.event.firstWrong(event, m.commit.versionOf(event)), m.commit.versionOf(event) === version];
            })""",
            [[json.dumps(event.get("event", event)) for event in events], enc_v],
        )
        assert wrong == [[None, True]] * len(events)


def test_bundles(page: "Page") -> None:
    examples = load("bundles")
    found = page.evaluate(
        """examples => examples.flatMap(({ids, events_root, siblings}) => siblings.map((s, index) =>
            m.bundle.walkMembership({index, siblings: s.map(un), size: ids.length}, un(ids[index]), un(events_root)).why
        ))""",
        examples,
    )
    assert found == [None] * sum(len(each["ids"]) for each in examples)


def test_the_log(page: "Page") -> None:
    example = load("ct_log")
    leaves, roots, inclusion, consistency, head = page.evaluate(
        """({leaves, roots, inclusion, consistency, sth}) => [
            leaves.map(each => hex(m.hashing.logLeaf(un(each.events_root), un(each.state_hash)))),
            hex(m.hashing.EMPTY),
            inclusion.map(each => m.ct.walkInclusion(
                m.ct.readInclusion(each), un(leaves[each.li].leaf), un(roots[each.ts])).why),
            consistency.map(each => m.ct.walkConsistency(
                m.ct.readConsistency(each), un(roots[each.ts1]), un(roots[each.ts2])).why),
            m.head.wrongHead(m.head.readHead({...sth, bound_sig: null}), un(sth.sequencer))]""",
        example,
    )
    assert leaves == [each["leaf"] for each in example["leaves"]]
    assert roots == example["roots"][0]
    assert inclusion == [None] * len(example["inclusion"])
    assert consistency == [None] * len(example["consistency"])
    assert head is None


def test_the_state(page: "Page") -> None:
    for example in load("smt"):
        found = page.evaluate(
            """({root, members, absent}) => [...members, ...absent].map(each => {
                const value = each.v === null ? null : un(each.v);
                const read = {key: un(each.k), value, bitmap: un(each.b), siblings: each.s.map(un)};
                return m.smt.walkState(read, read.key, un(root)).why;
            })""",
            example,
        )
        assert found == [None] * (len(example["members"]) + len(example["absent"]))
    keys = [each for each in load("kv_keys") if len(each["raw"]) == 64]
    assert page.evaluate("keys => keys.map(each => hex(m.smt.treeKey('kv', un(each.raw))))", keys) == [
        k["k"] for k in keys
    ]


def test_witnesses(page: "Page") -> None:
    example = load("witness")
    judge = """([enclave, wires]) => wires.map(wire => {
        try {
            const read = m.head.readCosigned(m.head.cosignedForm(m.json.parseJson(wire)));
            return m.head.wrongCosigned(read, un(enclave));
        } catch (error) { return error.message; }
    })"""
    good = [json.dumps(each["wire"]) for each in example["cosigned"]]
    # "another witness" is valid: evidence names its witness, and none is expected
    bad = [json.dumps(each["wire"]) for each in example["refused"] if each["why"] != "another witness"]
    assert page.evaluate(judge, [example["enclave"], good]) == [None] * len(good)
    assert None not in page.evaluate(judge, [example["enclave"], bad])


def test_withheld_contents(page: "Page") -> None:
    example = load("withheld")
    judge = """([events, nodes]) => events.map(wire => {
        try {
            const event = m.event.readEvent(m.event.eventForm(m.json.parseJson(wire)));
            return m.event.withheldBy(event, nodes.map(un)) !== null;
        } catch (error) { return error.message; }
    })"""
    nodes = [KEYS[name].public.hex() for name in ("node", "node2")]
    lines = [json.dumps(each["line"]) for each in example["lines"]]
    counts = page.evaluate(judge, [lines, nodes])
    expected = [withheld_by(parse_event(line), {bytes.fromhex(key) for key in nodes}) is not None for line in lines]
    assert counts == expected
    assert sum(expected) == 7
    for message in page.evaluate(judge, [[json.dumps(each["event"]) for each in example["malformed"]], nodes]):
        assert "withheld" in message


@pytest.mark.skipif(not (EXTERNAL / "bip340.csv").is_file(), reason="BIP-340's test data is not beside the checkout")
def test_bip340(page: "Page") -> None:
    rows = [row for row in csv.DictReader((EXTERNAL / "bip340.csv").open()) if len(row["message"]) == 64]
    cases = [[row[name].lower() for name in ("public key", "message", "signature")] for row in rows]
    found = page.evaluate(
        "cases => cases.map(([key, text, sig]) => m.schnorr.isSchnorr(un(key), un(text), un(sig)))", cases
    )
    assert found == [row["verification result"] == "TRUE" for row in rows]


def test_ecdsa_by_others(page: "Page") -> None:
    path = EXTERNAL / "ecdsa_secp256k1_sha256_p1363_test.json"
    if not path.is_file():
        pytest.skip("Wycheproof's test data is not beside the checkout")
    from enc.core.errors import InvalidSignature
    from enc.core.primitives.hashing import sha256
    from enc.core.primitives.signing import check_ecdsa

    cases, expected = [], []
    for group in json.loads(path.read_text())["testGroups"]:
        point = bytes.fromhex(group["publicKey"]["uncompressed"])
        for test in group["tests"]:
            digest, sig = sha256(bytes.fromhex(test["msg"])), bytes.fromhex(test["sig"])
            if len(sig) != 64:
                continue
            cases.append([point[1:33].hex(), digest.hex(), sig.hex()])
            try:
                check_ecdsa(point[1:33], digest, sig)
                expected.append(True)
            except InvalidSignature:
                expected.append(False)
    found = page.evaluate(
        "cases => cases.map(([key, text, sig]) => m.schnorr.isEcdsa(un(key), un(text), un(sig)))", cases
    )
    assert found == expected
    assert True in expected
    assert False in expected


# The same verdict

JUDGE = """files => files.map(file => {
    const found = m.inspect.inspectBytes(Uint8Array.from(atob(file), letter => letter.charCodeAt(0)));
    const whys = found.groups.flatMap(group => group.steps).map(step => step.why).filter(why => why !== null);
    const {verdict, ok, convicts, proved, notProved} = found;
    return {verdict, ok, convicts, proved, not_proved: notProved, whys};
})"""


def judged(page: "Page", files: list[bytes]) -> list[dict[str, Any]]:
    found = list[dict[str, Any]]()
    for n in range(0, len(files), 200):
        found += page.evaluate(JUDGE, [base64.b64encode(file).decode() for file in files[n : n + 200]])
    return found


def by_python(data: bytes) -> dict[str, Any]:
    try:
        found = _check(data, None)
    except InvalidProof as e:
        return {"refused": e.message}
    return {"convicts": False, **found}


def agree(page: "Page", files: list[bytes]) -> tuple[int, int]:
    """Return how many files both accepted, and how many both rejected."""
    counts = [0, 0]
    for data, js in zip(files, judged(page, files), strict=True):
        py = by_python(data)
        shown = (js, py, data.decode(errors="replace")[:3000])
        if "refused" in py:
            unknown = py["refused"].startswith("neither a proof nor evidence")
            assert js["verdict"] in (*REFUSED, *(["unsupported"] if unknown else [])), shown
            assert (js["ok"], js["convicts"], js["proved"], js["not_proved"]) == (False, False, [], []), shown
            assert js["verdict"] != "fails" or js["whys"], shown
        else:
            assert js["verdict"] not in (*REFUSED, "unsupported"), shown
            names = ("ok", "convicts", "proved", "not_proved")
            assert {name: _worded(js[name]) for name in names} == {name: _worded(py[name]) for name in names}, shown
        counts["refused" in py] += 1
    return counts[0], counts[1]


def _worded(found: Any) -> Any:
    """Ignore the details of JSON errors: each parser words them differently."""
    unread = "a line of the log cannot be read as an event"
    return [unread if each.startswith(unread) else each for each in found] if isinstance(found, list) else found


PROOFS, EVIDENCE = proofs(), evidence()


def test_every_proof_holds(page: "Page") -> None:
    assert agree(page, list(PROOFS.values())) == (len(PROOFS), 0)
    assert {each["verdict"] for each in judged(page, list(PROOFS.values()))} == {"holds"}


def test_every_piece_of_evidence_is_judged_alike(page: "Page") -> None:
    taken, refused = agree(page, list(EVIDENCE.values()))
    assert (taken > 15, refused > 6) == (True, True)
    verdicts = {each["verdict"] for each in judged(page, list(EVIDENCE.values()))}
    assert verdicts == {"convicts", "finding", "open", "fails", "unreadable"}


@pytest.mark.parametrize(("name", "data"), bent().items(), ids=[name[:60] for name in bent()])
def test_a_single_rule_that_a_liar_breaks(page: "Page", name: str, data: bytes) -> None:
    """All signatures and paths are valid: only one rule is broken."""
    assert agree(page, [data]) == (0, 1), name


def changed(files: dict[str, bytes], name: str) -> list[bytes]:
    others = [data for other, data in files.items() if other != name]
    found = list(mutated(files[name], Random(name).sample(others, 3), name))
    return Random(name).sample(found, min(SAMPLE, len(found)))


@pytest.mark.parametrize("name", PROOFS)
def test_a_broken_proof_is_broken_for_both(page: "Page", name: str) -> None:
    _, refused = agree(page, changed(PROOFS, name))
    assert refused > 80


@pytest.mark.parametrize("name", EVIDENCE)
def test_broken_evidence_is_broken_for_both(page: "Page", name: str) -> None:
    assert sum(agree(page, changed(EVIDENCE, name))) > 50


def test_a_refusal_says_what_python_says(page: "Page") -> None:
    """If a file can be read, the failing step gives the same reason as `enc verify`."""
    files = [data for name in ("plain", "value", "moved 2", "ecdsa") for data in changed(PROOFS, name)]
    compared = 0
    for data, js in zip(files, judged(page, files), strict=True):
        if js["verdict"] == "fails":
            assert by_python(data)["refused"] in js["whys"], (by_python(data), js["whys"])
            compared += 1
    assert compared > 40


@pytest.mark.parametrize("enc_v", [1, 2])
def test_more_tags_than_a_browser_takes_arguments(page: "Page", enc_v: int) -> None:
    made = Made(enc_v)
    many = made.say("hello", tags=(("a",),) * 200_000)
    made.close()
    wide = made.say("hello", tags=(tuple(["a"] * 200_000),))
    made.close()
    files = [made.proof(made.fact(event, status=False)) for event in (many, wide)]
    assert agree(page, files) == (2, 0)


# Not a proof file

HOSTILE = [
    b"",
    b" \n ",
    b"null",
    b"[]",
    b"{}",
    b"7",
    b'"enc-proof"',
    b"{" * 100_000,
    b"[" * 1_000_000,
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b'{"format": "enc-proof"}',
    b'{"format": ["enc-proof"]}',
    b'{"format": "enc-evidence", "version": 1, "kind": "treason"}',
    b'{"__proto__": {"format": "enc-proof"}}',
    b'{"format": "constructor"}',
    b'{"a": 01}',
    b'{"a": 1,}',
    b'{"a": "\\ud800"}',
    b'{"a": "\x01"}',
    b'{"a": nul}',
    b'{"a": 1} 2',
]


def test_hostile_files_are_refused_with_a_sentence(page: "Page") -> None:
    for data, js in zip(HOSTILE, judged(page, HOSTILE), strict=True):
        assert (js["verdict"] in ("unreadable", "unsupported"), js["ok"]) == (True, False), data[:40]
        assert "refused" in by_python(data)


def inspected(page: "Page", text: str, **options: str) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("([text, options]) => m.inspect.inspectText(text, options)", [text, options])
    return found


def test_a_number_is_read_to_its_last_digit(page: "Page") -> None:
    """JSON.parse would take 9007199254740993 for 9007199254740992, and 1.0 for 1."""
    read = """texts => texts.map(text => m.json.parseJson(text))
        .map(each => typeof each === "object" ? each.text : String(each))"""
    texts = ["9007199254740993", "1.0", "-0", "1e3", "9007199254740991", "123456789012345678901234567890"]
    assert page.evaluate(read, texts) == ["9007199254740993", "1.0", "0", "1e3", *texts[4:]]


def test_what_two_readers_could_read_differently_is_refused(page: "Page") -> None:
    """Python takes the last of two equal keys, and ignores deep nesting outside fields; the page rejects such files."""
    text = PROOFS["plain"].decode().rstrip()
    twice = inspected(page, text[:-1] + f', "sequencer": "{"00" * 32}", "x": 1}}')
    assert (twice["verdict"], "is repeated" in twice["why"]) == ("unreadable", True)
    deep = inspected(page, text[:-1] + ', "x": ' + "[" * 100 + "]" * 100 + "}")
    assert (deep["verdict"], "nested deeper than 64" in deep["why"]) == ("unreadable", True)
    assert inspected(page, text[:-1] + ', "x": ' + "[" * 60 + "]" * 60 + "}")["verdict"] == "holds"


def test_a_file_over_the_limit_is_not_read(page: "Page") -> None:
    most = page.evaluate("m.inspect.MAX_BYTES")
    assert most == 8 << 20
    text = PROOFS["plain"].decode()
    size = (
        "([text, extra]) => m.inspect.inspectText(text + ' '.repeat(m.inspect.MAX_BYTES - text.length + extra)).verdict"
    )
    assert page.evaluate(size, [text, 0]) == "holds"
    assert page.evaluate(size, [text, 1]) == "unreadable"
    wide = "text => m.inspect.inspectText('é'.repeat(m.inspect.MAX_BYTES / 2 + 1)).why"
    assert "over 8 MiB" in page.evaluate(wide, text)


def test_a_kind_that_needs_a_replay_is_never_green(page: "Page") -> None:
    wire = json.loads(EVIDENCE["fork"]) | {"kind": "log"}
    found = inspected(page, json.dumps(wire))
    assert (found["verdict"], found["ok"], found["convicts"]) == ("unsupported", False, False)
    assert "kind “log”" in found["why"]
    other = inspected(page, '{"format": "enc-owner-proof"}')
    assert (other["verdict"], "enc-owner-proof" in other["why"]) == ("unsupported", True)


# The trusted sequencer, and the requested event


def test_another_key_than_the_expected_one_is_red(page: "Page") -> None:
    text, key = PROOFS["plain"].decode(), json.loads(PROOFS["plain"])["sequencer"]
    assert inspected(page, text, expected=key)["verdict"] == "holds"
    assert inspected(page, text, expected=f" {key.upper()} ")["verdict"] == "holds"
    for other in ("00" * 32, key[:-2], "my node"):
        found = inspected(page, text, expected=other)
        assert (found["verdict"], found["broken"], found["proved"]) == ("fails", "pin", [])
        with pytest.raises(InvalidProof):
            _check(text.encode(), other)
    fork = inspected(page, EVIDENCE["fork"].decode(), expected="00" * 32)
    assert (fork["verdict"], fork["convicts"]) == ("fails", False)


def test_another_event_than_the_asked_one_is_red(page: "Page") -> None:
    wire = json.loads(PROOFS["plain"])
    assert inspected(page, json.dumps(wire), asked=wire["event"]["event"]["id"])["verdict"] == "holds"
    found = inspected(page, json.dumps(wire), asked="00" * 32)
    assert (found["verdict"], found["broken"]) == ("fails", "asked")
    assert inspected(page, PROOFS["value"].decode(), asked="00" * 32)["verdict"] == "fails"


# Less than a proof


def test_an_event_alone_and_a_receipt_are_never_green(page: "Page") -> None:
    event = json.loads(PROOFS["plain"])["event"]["event"]
    for wire in (event, receipt()):
        found = inspected(page, json.dumps(wire))
        assert (found["verdict"], found["ok"]) == ("signatures", False)
        assert any("in the log" in each for each in found["notProved"])
        for name in ("seq_sig", "sig", "id", "sequencer"):
            bad = wire | {name: wire[name][:-1] + ("0" if wire[name][-1] != "0" else "1")}
            assert inspected(page, json.dumps(bad))["verdict"] == "fails"


def test_a_broken_step_is_the_one_that_was_broken(page: "Page") -> None:
    made, told = log_of()
    whole = json.loads(made.proof(made.fact(told["plain"])))

    def broken(*path: str, **more: Any) -> list[str]:
        copy = json.loads(json.dumps(whole))
        inner = copy
        for key in path[:-1]:
            inner = inner[key]
        value = inner[path[-1]]
        flipped = value[:-1] + ("0" if value[-1] != "0" else "1") if isinstance(value, str) else value
        inner[path[-1]] = more.get("to", flipped)
        groups = inspected(page, json.dumps(copy))["groups"]
        return [step["id"] for group in groups for step in group["steps"] if step["why"] is not None]

    event = ("event", "event")
    assert broken(*event, "content") == ["hash"]
    assert broken(*event, "sig") == ["author", "order"]
    assert broken(*event, "seq_sig") == ["order", "id"]
    assert broken(*event, "seq", to=3) == ["order"]
    assert broken(*event, "id") == ["id", "bundle", "status-status"]
    assert broken("event", "membership", "ei", to=0) == ["bundle"]
    assert broken("event", "anchor", "state_hash") == ["inclusion"]
    assert broken("event", "anchor", "events_root") == ["bundle", "inclusion"]
    assert broken("event", "anchor", "li", to=1) == ["inclusion"]
    assert broken("event", "anchor", "sth", "r") == ["inclusion", "head", "bound"]
    assert broken("event", "anchor", "sth", "sig") == ["head"]
    assert broken("event", "anchor", "sth", "bound_sig") == ["bound"]
    assert broken("event", "status", "proof", "v", to="00") == ["status-state"]
    assert broken("event", "status", "anchor", "sth", "sig") == ["status-head"]


def test_the_vendored_libraries_are_those_that_are_named() -> None:
    """Nothing was added to them but relative paths."""
    folder = Path(__file__).parents[3] / "src/enc/dataview/page/vendor"
    assert not [path for path in folder.rglob("*.js") if "'@noble" in _imports(path)]
    assert {path.parent.name for path in folder.rglob("LICENSE")} == {"noble-curves", "noble-hashes"}
    assert "2.4.0" in (folder / "README.md").read_text()


def _imports(path: Path) -> str:
    return "\n".join(line for line in path.read_text().splitlines() if line.startswith("import"))
