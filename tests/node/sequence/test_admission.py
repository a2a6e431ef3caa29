"""What an operator decides: who founds enclaves, how much, how fast; proxies, browsers, TLS; and what is watched."""

import asyncio
import os
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from msgspec.json import encode
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from enc import __version__
from enc.core.errors import EncError, MisuseError, Unavailable
from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.receipt import parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit, Receipt
from enc.node import assembly
from enc.node.api import status_pages
from enc.node.config import Admission, Config, Cors, Limits, Proxy, Rates, Retention, Tls
from enc.node.limits.quota import Quota
from enc.node.sequence.admitted import AdmittedCommit, CommitOutcome
from enc.node.sequence.sequencer import Sequencer, SequencerSettings
from enc.node.store.protocol import Usage
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import LIFETIME, START, person, pub
from tests.node.memory_store import MemoryStore
from tests.node.running import RunningNode
from tests.node.served import DEV, NODE, PATIENCE_S, SMALL, Clock, Served, bad, good, sqlite


def admitting(**settings: Any) -> Config:
    return replace(DEV, admission=Admission(**settings))


def founds(node: Served, name: str, n: int = 0) -> Receipt | EncError:
    """A Manifest by `name`, told apart by `n`."""
    return outcome(node, node.manifest({**SMALL, "meta": {"by": name, "n": n}}, name))


def outcome(node: Served, commit: Commit) -> Receipt | EncError:
    response = node.post(wire_commit(commit))
    return parse_receipt(response.content) if response.status_code == 200 else bad(response)


def codes(outcomes: list[Receipt | EncError]) -> list[str]:
    return [found.code if isinstance(found, EncError) else "" for found in outcomes]


# Who may found enclaves


@pytest.mark.parametrize(
    ("create", "allow", "may"), [("open", (), "alice bob"), ("allowlist", (pub("bob"),), "bob"), ("closed", (), "")]
)
def test_who_may_found(create: str, allow: tuple[str, ...], may: str) -> None:
    with Served(admitting(create=create, allow=allow)) as node:
        assert good(node.get("/info"))["create"] == create
        for name in ("alice", "bob"):
            found = founds(node, name)
            if name in may.split():
                assert isinstance(found, Receipt)
            else:
                assert isinstance(found, EncError)
                assert (found.status, found.code) == (403, "UNAUTHORIZED")
                assert bad(node.get(f"/{node.manifest(SMALL, name).enclave.hex()}/sth")).code == "ENCLAVE_NOT_FOUND"


def test_an_allowlist_without_names_and_a_name_without_an_allowlist_allow_nobody() -> None:
    for settings in ({"create": "allowlist"}, {"create": "closed", "allow": (pub("alice"),)}):
        with Served(admitting(**settings)) as node:
            assert codes([founds(node, "alice")]) == ["UNAUTHORIZED"]


def test_a_node_that_founds_nothing_goes_on_with_what_it_has() -> None:
    store, clock = MemoryStore(), Clock()
    with Served(store=store, clock=clock) as node:
        enclave = node.found(SMALL)
    with Served(admitting(create="closed"), store, clock) as node:
        enclave.node = node
        assert enclave.send("bob", "message", "still here").seq == 1
        assert codes([outcome(node, enclave.manifest)]) == ["DUPLICATE"]
        renewed = build_commit(person("alice"), enclave.id, "Manifest", enclave.manifest.content or "", clock.now)
        assert codes([outcome(node, renewed)]) == ["ENCLAVE_EXISTS"]


def test_the_signature_is_checked_before_the_operators_list() -> None:
    with Served(admitting(create="closed")) as node:
        wire = wire_commit(node.manifest(SMALL))
        assert bad(node.post({**wire, "sig": "00" * 64})).code == "INVALID_SIGNATURE"


# Quotas


def test_a_quota_of_enclaves() -> None:
    with Served(admitting(max_enclaves=2)) as node:
        assert codes([founds(node, "alice", n) for n in range(3)]) == ["", "", "UNAUTHORIZED"]
        assert codes([founds(node, "bob")]) == [""]
        enclave = node.found(SMALL, "carol")
        assert enclave.send("alice", "message", "writing is no founding").seq == 1


def test_who_has_more_enclaves_than_a_lowered_quota_goes_on_writing() -> None:
    clock, store = Clock(), MemoryStore()
    with Served(store=store, clock=clock) as node:
        enclave, _ = node.found(SMALL), node.found(SMALL)
    with Served(admitting(max_enclaves=1), store, clock) as node:
        enclave.node = node
        assert enclave.send("alice", "message", "x").seq == 1
        assert codes([founds(node, "alice")]) == ["UNAUTHORIZED"]


def test_a_quota_of_enclaves_comes_back_when_one_is_gone() -> None:
    config = replace(admitting(max_enclaves=1), retention=Retention(purge_after_s=60))
    with Served(config) as node:
        enclave = node.found(SMALL)
        enclave.send("alice", "Terminate")
        assert codes([founds(node, "alice")]) == ["UNAUTHORIZED"]
        node.clock.tick(61_000)
        node.settle()
        assert codes([founds(node, "alice")]) == [""]


def test_a_quota_of_events() -> None:
    with Served(admitting(max_events=3)) as node:
        enclave, other = node.found(SMALL), node.found(SMALL, "carol")
        assert [enclave.send("alice", "message", "x").seq, other.send("alice", "message", "y").seq] == [1, 1]
        error = enclave.refused("alice", "message", "z")
        assert (error.status, error.code) == (403, "UNAUTHORIZED")
        assert "quota" in error.message
        assert codes([founds(node, "alice")]) == ["UNAUTHORIZED"]
        assert enclave.refused("mallory", "message").code == "UNAUTHORIZED"
        assert [enclave.send("bob", "message", "x").seq for _ in range(3)] == [2, 3, 4]


def test_a_quota_of_bytes_counts_contents_in_utf8() -> None:
    clock, store = Clock(), MemoryStore()
    with Served(store=store, clock=clock) as node:
        enclave = node.found(SMALL, "carol")
    with Served(admitting(max_bytes=10), store, clock) as node:
        enclave.node = node
        enclave.send("bob", "message", "ééé")
        assert enclave.refused("bob", "message", "12345").code == "UNAUTHORIZED"
        enclave.send("bob", "message", "1234")
        assert enclave.refused("bob", "message", "1").code == "UNAUTHORIZED"
        enclave.send("bob", "message", "")
        assert store.usage(person("bob").public) == Usage(0, 3, 10)
        assert codes([founds(node, "dave")]) == ["UNAUTHORIZED"]  # a Manifest has a content too
        assert store.usage(person("dave").public) == Usage()


def test_quotas_hold_after_a_restart(tmp_path: Path) -> None:
    clock, store = Clock(), sqlite(tmp_path)
    with Served(admitting(max_events=2), store, clock) as node:
        enclave = node.found(SMALL)
        enclave.send("bob", "message", "x")
    store.close()
    store = sqlite(tmp_path)
    with Served(admitting(max_events=2), store, clock) as node:
        enclave.node = node
        enclave.send("bob", "message", "y")
        assert enclave.refused("bob", "message", "z").code == "UNAUTHORIZED"
    store.close()


@pytest.mark.parametrize(
    ("quota", "accepted"), [(Quota(events=2), 2), (Quota(bytes=5), 5), (Quota(events=3, bytes=2), 2), (Quota(), 6)]
)
def test_quotas_hold_inside_one_batch(quota: Quota, accepted: int) -> None:
    store, outcomes = MemoryStore(), list[CommitOutcome]()
    founding = Sequencer(store, NODE, lambda: START, deliver=outcomes.extend)
    manifest = build_manifest(person("alice"), compact_json(SMALL), START + LIFETIME)
    founding.run_once([AdmittedCommit(manifest)])
    sequencer = Sequencer(store, NODE, lambda: START, deliver=outcomes.extend, settings=SequencerSettings(quota=quota))

    def commits(name: str, count: int) -> list[AdmittedCommit]:
        exps = range(START + LIFETIME, START + LIFETIME + count)
        return [AdmittedCommit(build_commit(person(name), manifest.enclave, "message", "x", exp)) for exp in exps]

    outcomes.clear()
    refused = commits("mallory", 3)
    sequencer.run_once([*commits("bob", 6), *refused, *commits("carol", 2)])
    found = [isinstance(result, Receipt) for _, result in outcomes]
    assert found == [True] * accepted + [False] * (6 - accepted) + [False] * 3 + [True] * 2
    assert store.usage(person("bob").public) == Usage(0, accepted, accepted)
    assert store.usage(person("mallory").public) == Usage()


def test_a_quota_of_enclaves_holds_inside_one_batch() -> None:
    store, outcomes = MemoryStore(), list[CommitOutcome]()
    sequencer = Sequencer(
        store, NODE, lambda: START, deliver=outcomes.extend, settings=SequencerSettings(quota=Quota(enclaves=2))
    )
    manifests = [compact_json({**SMALL, "meta": {"n": n}}) for n in range(4)]
    sequencer.run_once([AdmittedCommit(build_manifest(person("alice"), text, START + LIFETIME)) for text in manifests])
    assert [isinstance(result, Receipt) for _, result in outcomes] == [True, True, False, False]


def test_a_batch_that_could_not_be_written_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise Unavailable("no disk")

    with Served(admitting(max_events=2)) as node:
        enclave = node.found(SMALL)
        with monkeypatch.context() as broken:
            broken.setattr(node.store, "write", fail)
            assert enclave.refused("bob", "message").code == "UNAVAILABLE"
        assert [enclave.send("bob", "message").seq for _ in range(2)] == [1, 2]
        assert enclave.refused("bob", "message").code == "UNAUTHORIZED"


# Rates

SLOW = Config(port=0, rates=Rates(identity_per_s=0.5, identity_burst=2, address_per_s=0))


def test_a_rate_for_each_identity() -> None:
    with Served(SLOW) as node:
        enclave = node.found(SMALL)
        enclave.send("alice", "message", "the second")
        error = enclave.refused("alice", "message", "the third")
        assert (error.status, error.code) == (429, "RATE_LIMITED")
        assert 1900 < error.context["retry_after_ms"] <= 2000
        enclave.send("bob", "message", "another's rate is another's")
        node.clock.tick(2000)
        enclave.send("alice", "message", "again")
        assert enclave.refused("alice", "message", "too soon").code == "RATE_LIMITED"


def test_asking_and_writing_draw_on_one_rate() -> None:
    with Served(SLOW) as node:
        enclave = node.found(SMALL, "carol")
        assert enclave.seqs("bob") == [0]
        enclave.send("bob", "message", "x")
        for type_, body in (("Query", {"filter": {}}), ("Bundle_Proof", {"leaf_index": 0}), ("Checkpoint", {})):
            error = enclave.denied("bob", type_, **body)
            assert (error.status, error.code) == (429, "RATE_LIMITED")
        assert enclave.refused("bob", "message").code == "RATE_LIMITED"
        assert enclave.seqs("alice") == [0, 1]


def test_nobody_can_use_up_anothers_rate() -> None:
    with Served(SLOW) as node:
        enclave = node.found(SMALL, "carol")
        forged = wire_commit(enclave.commit("bob", "message", "x"))
        request = enclave.request("bob", "Query", filter={})
        for _ in range(5):
            assert bad(node.post({**forged, "sig": "00" * 64})).code == "INVALID_SIGNATURE"
            assert bad(node.post({**request, "content": "A" * 64})).code == "DECRYPT_FAILED"
            assert bad(node.post({**request, "session": node.session("dave").token.hex()})).code == "INVALID_SESSION"
        assert [enclave.send("bob", "message", text).seq for text in "ab"] == [1, 2]


@pytest.mark.parametrize("path", ["/info", "/health", "/metrics", "/nothing", "/{enclave}/sth"])
def test_a_rate_for_each_address(path: str) -> None:
    config = Config(port=0, rates=Rates(identity_per_s=0, address_per_s=1, address_burst=3))
    with Served(config) as node:
        enclave = node.found(SMALL)
        path = path.format(enclave=enclave.id.hex())
        assert [node.get(path).status_code == 429 for _ in range(4)] == [False, False, True, True]
        assert bad(node.get(path)).context == {"retry_after_ms": 1000}
        for refused in (enclave.refused("bob", "message"), enclave.denied("bob", "Query", filter={})):
            assert (refused.status, refused.code) == (429, "RATE_LIMITED")
        node.clock.tick(1000)
        assert node.get(path).status_code != 429
        assert node.get(path).status_code == 429


def test_development_lifts_the_rates() -> None:
    rates = Rates(identity_per_s=1, identity_burst=1, address_per_s=1, address_burst=1)
    with Served(Config(port=0, dev=True, rates=rates)) as node:
        enclave = node.found(SMALL)
        assert [enclave.send("alice", "message").seq for _ in range(5)] == [1, 2, 3, 4, 5]


# Proxies


def proxied(*trusted: str) -> Config:
    rates = Rates(identity_per_s=0, address_per_s=1, address_burst=1)
    return Config(port=0, rates=rates, proxy=Proxy(trusted=trusted))


def limited(node: Served, forwarded: str) -> bool:
    return node.get("/info", headers={"x-forwarded-for": forwarded}).status_code == 429


@pytest.mark.parametrize("trusted", [(), ("10.0.0.0/8",), ("127.0.0.2",), ("::1",)])
def test_a_forwarded_address_is_not_believed_from_just_anybody(trusted: tuple[str, ...]) -> None:
    with Served(proxied(*trusted)) as node:
        assert [limited(node, f"203.0.113.{n}") for n in range(3)] == [False, True, True]


@pytest.mark.parametrize("trusted", [("127.0.0.1",), ("127.0.0.0/8", "10.0.0.1"), ("0.0.0.0/0", "::/0")])
def test_a_trusted_proxy_tells_clients_apart(trusted: tuple[str, ...]) -> None:
    with Served(proxied(*trusted)) as node:
        assert [limited(node, f"203.0.113.{n}") for n in (1, 2, 1, 2, 3)] == [False, False, True, True, False]


def test_what_a_client_says_of_itself_before_the_proxy_does_not_count() -> None:
    with Served(proxied("127.0.0.1", "10.0.0.1")) as node:
        chains = ("198.51.100.1, 203.0.113.1", "198.51.100.2, 203.0.113.1", "198.51.100.3, 203.0.113.1, 10.0.0.1")
        assert [limited(node, chain) for chain in chains] == [False, True, True]


def test_forwarded_nonsense_has_one_rate_for_all() -> None:
    with Served(proxied("127.0.0.1")) as node:
        assert [limited(node, text) for text in ("one", "two", "three; four", "999.1.1.1")] == [False, True, True, True]


def test_a_subscriber_has_one_rate_for_all_addresses_of_a_network() -> None:
    with Served(proxied("127.0.0.1")) as node:
        addresses = ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "203.0.113.1", "::ffff:203.0.113.1")
        assert [limited(node, address) for address in addresses] == [False, True, False, False, True]


# Browsers

ORIGIN = "https://app.example"


def crossing(*origins: str) -> Config:
    return replace(DEV, cors=Cors(origins=origins), limits=Limits(body=4096))


def preflight(node: Served, origin: str, method: str = "POST") -> httpx.Response:
    headers = {"origin": origin, "access-control-request-method": method}
    return node.http.options("/", headers={**headers, "access-control-request-headers": "content-type"})


@pytest.mark.parametrize(
    ("origins", "allowed"), [((ORIGIN,), ORIGIN), (("*",), "*"), (("https://b.example", ORIGIN), ORIGIN)]
)
def test_a_page_of_an_allowed_origin_may_call(origins: tuple[str, ...], allowed: str) -> None:
    with Served(crossing(*origins)) as node:
        answer = preflight(node, ORIGIN)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, allowed)
        assert {"GET", "POST"} <= set(answer.headers["access-control-allow-methods"].split(", "))
        assert "content-type" in answer.headers["access-control-allow-headers"].lower()
        calls = [
            node.get("/info", headers={"origin": ORIGIN}),
            node.get("/nothing", headers={"origin": ORIGIN}),
            node.post(b"{}", headers={"origin": ORIGIN}),
            node.post(b" " * 5000, headers={"origin": ORIGIN}),
            node.post(wire_commit(node.manifest({**SMALL, "init": SMALL["init"][:1]})), headers={"origin": ORIGIN}),
        ]
        for call in calls:
            assert call.headers["access-control-allow-origin"] == allowed, call
            assert call.headers["access-control-expose-headers"].lower() == "retry-after"
        assert [call.status_code for call in calls] == [200, 404, 400, 413, 200]


def test_a_page_of_another_origin_may_not() -> None:
    with Served(crossing(ORIGIN)) as node:
        for origin in ("https://evil.example", "http://app.example", "https://app.example:8443", "null"):
            answer = preflight(node, origin)
            assert answer.status_code == 400
            assert "access-control-allow-origin" not in answer.headers
            assert "access-control-allow-origin" not in node.get("/info", headers={"origin": origin}).headers


def test_no_page_may_where_no_origin_is_named() -> None:
    with Served(crossing()) as node:
        good(node.get("/info"))
        assert preflight(node, ORIGIN).status_code in (404, 405)
        assert "access-control-allow-origin" not in node.get("/info", headers={"origin": ORIGIN}).headers


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_a_page_may_only_get_and_post(method: str) -> None:
    with Served(crossing(ORIGIN)) as node:
        assert preflight(node, ORIGIN, method).status_code == 400


# TLS


class Certificate:
    """The files of a certificate, written anew by an authority."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "chain.pem", folder / "key.pem"
        self._time = 10**18
        self.write()

    def write(self, *, chain: bool = True, key: bool = True) -> trustme.CA:
        """A new pair by a new authority; only one half of it, if told so."""
        authority = trustme.CA()
        made = authority.issue_cert("127.0.0.1", "localhost")
        if chain:
            self.put(0, b"".join(blob.bytes() for blob in made.cert_chain_pems))
        if key:
            self.put(1, made.private_key_pem.bytes())
        self.authority = authority
        return authority

    def put(self, which: int, text: bytes) -> None:
        self._time += 10**9  # a change shows, however soon it comes
        self.files[which].write_bytes(text)
        os.utime(self.files[which], ns=(self._time, self._time))

    @property
    def config(self) -> Config:
        return replace(DEV, tls=Tls(certificate=str(self.files[0]), key=str(self.files[1])))


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate(tmp_path)


def secured(node: Served, authority: trustme.CA) -> httpx.Client:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return httpx.Client(base_url=node.url, verify=context, timeout=PATIENCE_S, trust_env=False)


def is_trusted(node: Served, authority: trustme.CA) -> bool:
    """Whether a new connection is secured by this authority's certificate."""
    with secured(node, authority) as client:
        try:
            return client.get("/info").status_code == 200
        except httpx.ConnectError as e:
            if "certificate verify failed" not in str(e):
                raise
            return False


def test_https(certificate: Certificate) -> None:
    with Served(certificate.config) as node:
        assert node.url.startswith("https://127.0.0.1:")
        node.http.close()
        with secured(node, certificate.authority) as node.http:
            enclave = node.found(SMALL)
            enclave.send("bob", "message", "sealed twice")
            assert enclave.seqs("bob") == [0, 1]
            assert not is_trusted(node, trustme.CA())
            with pytest.raises(httpx.HTTPError):
                httpx.get(node.url.replace("https", "http") + "/info", timeout=PATIENCE_S, trust_env=False)
            good(node.get("/info"))


def test_http() -> None:
    with Served() as node:
        assert node.url.startswith("http://127.0.0.1:")
        with pytest.raises(httpx.HTTPError):
            httpx.get(node.url.replace("http", "https") + "/info", timeout=PATIENCE_S, trust_env=False)
        good(node.get("/info"))


def reload(node: Served) -> None:
    node.on_loop(node.server._certificates.reload_if_changed)


def test_a_new_certificate_is_taken_without_a_restart(certificate: Certificate) -> None:
    old = certificate.authority
    with Served(certificate.config) as node, secured(node, old) as lasting:
        good(lasting.get("/info"))
        new = certificate.write()
        reload(node)
        assert (is_trusted(node, new), is_trusted(node, old)) == (True, False)
        good(lasting.get("/info"))  # on its connection of before


def test_the_node_looks_for_new_certificates_by_itself(certificate: Certificate) -> None:
    with Served(certificate.config) as node:
        new = certificate.write()
        ticked = asyncio.run_coroutine_threadsafe(node.server.on_tick(10), node.node.loop)
        assert ticked.result(PATIENCE_S) is False
        assert is_trusted(node, new)


Breaks = Callable[[Certificate], Any]


@pytest.mark.parametrize(
    "breaks",
    [
        lambda certificate: certificate.files[0].unlink(),
        lambda certificate: certificate.files[1].unlink(),
        lambda certificate: certificate.put(0, b"no certificate"),
        lambda certificate: certificate.put(1, b"no key"),
        lambda certificate: certificate.write(key=False),
        lambda certificate: certificate.write(chain=False),
    ],
    ids=["no chain", "no key", "broken chain", "broken key", "another's key", "another's chain"],
)
def test_files_that_do_not_fit_together_leave_the_old_ones_in_use(certificate: Certificate, breaks: Breaks) -> None:
    old = certificate.authority
    with Served(certificate.config) as node:
        breaks(certificate)
        reload(node)
        assert is_trusted(node, old)
        new = certificate.write()
        reload(node)
        assert (is_trusted(node, new), is_trusted(node, old)) == (True, False)


@pytest.mark.parametrize("file", [0, 1])
def test_a_node_does_not_start_without_its_certificate(certificate: Certificate, file: int) -> None:
    certificate.files[file].write_bytes(b"nonsense")
    with pytest.raises(MisuseError, match="tls"):
        Served(certificate.config)
    certificate.files[file].unlink()
    with pytest.raises(MisuseError, match="tls"):
        Served(certificate.config)


# What is watched


def test_info() -> None:
    config = replace(DEV, public_url="https://node.example/enc", admission=Admission(create="allowlist"))
    with Served(config) as node:
        found = good(node.get("/info"))
        assert found["seq_pub"] == pub("node")
        assert found["software"] == {"name": "enc", "version": __version__}
        assert (found["enc_v"], found["url"], found["create"]) == ([1, 2], "https://node.example/enc", "allowlist")
        assert found["limits"] == {name: getattr(Limits(), name) for name in found["limits"]}
    with Served() as node:
        assert good(node.get("/info"))["url"] is None


def health(node: Served) -> tuple[int, str]:
    """As tried now."""
    node.on_loop(lambda: setattr(node.node.pages, "_probe", None))
    response = node.get("/health")
    return response.status_code, response.json()["status"]


def test_health(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise Unavailable("the store cannot be written: SQLITE_FULL")

    with Served() as node:
        assert node.get("/health").json() == {"status": "ok"}
        with monkeypatch.context() as broken:
            broken.setattr(node.store, "write", fail)
            assert health(node) == (503, "failing")
            assert node.get("/health").json()["reason"] == "the store cannot be written: SQLITE_FULL"
        assert health(node) == (200, "ok")


def test_health_of_a_node_whose_clock_stands_behind() -> None:
    with Served() as node:
        node.found(SMALL)
        node.clock.now -= 60_001
        assert health(node) == (503, "failing")
        node.clock.now += 1
        assert health(node) == (200, "ok")


def test_health_of_a_node_whose_sequencer_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_pages, "PROBE_S", 0.01)
    with Served() as node:
        with node.held_up():
            assert health(node) == (503, "failing")
        monkeypatch.setattr(status_pages, "PROBE_S", PATIENCE_S)
        assert health(node) == (200, "ok")


def test_asked_often_it_is_not_tried_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with Served() as node:
        write, written = node.store.write, list[int]()
        monkeypatch.setattr(node.store, "write", lambda steps, clock: (written.append(len(steps)), write(steps, clock)))
        assert health(node) == (200, "ok")
        node.on_loop(lambda: setattr(node.node.pages, "_probe_until", node.node.loop.time() + PATIENCE_S))
        assert [node.get("/health").json()["status"] for _ in range(5)] == ["ok"] * 5
        node.on_loop(lambda: setattr(node.node.pages, "_probe_until", 0.0))
        assert node.get("/health").json()["status"] == "ok"
        assert written == [0, 0]


def test_many_who_ask_at_once_cost_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with Served() as node, ThreadPoolExecutor(4) as pool:
        write, written = node.store.write, list[int]()
        monkeypatch.setattr(node.store, "write", lambda steps, clock: (written.append(len(steps)), write(steps, clock)))
        connections = node.server.server_state.connections
        with node.held_up():
            asked = [pool.submit(node.get, "/health") for _ in range(4)]
            node.until(lambda: sum(c.cycle is not None for c in connections) == 4)
        assert [future.result(PATIENCE_S).status_code for future in asked] == [200] * 4
        assert written == [0]


def test_health_writes_to_the_disk_and_leaves_no_event(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    with Served(store=store) as node:
        enclave = node.found(SMALL)
        node.clock.tick(500)
        assert health(node) == (200, "ok")
        assert store.clock() == node.clock.now
        assert enclave.seqs("bob") == [0]
    store.close()


def figures(node: Served) -> dict[tuple[str, str], float]:
    """Samples by name and label."""
    families = text_string_to_metric_families(node.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, "".join(s.labels.values())): s.value for s in samples}


def test_metrics() -> None:
    with Served() as node:
        enclave = node.found(SMALL)
        enclave.send("bob", "message", "x")
        enclave.refused("mallory", "message", "x")
        enclave.refused("bob", "message", exp=1)
        node.get("/nothing")
        assert node.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
        found = figures(node)
    assert found["enc_commits_total", "accepted"] == 2
    assert found["enc_commits_total", "UNAUTHORIZED"] == 1
    assert found["enc_commits_total", "EXPIRED"] == 1
    assert found["enc_requests_total", "200"] == 3
    assert (found["enc_requests_total", "403"], found["enc_requests_total", "400"]) == (1, 1)
    assert found["enc_requests_total", "404"] == 1
    assert found["enc_batch_steps_count", ""] == 2
    assert found["enc_batch_steps_sum", ""] == 2
    assert found["enc_write_seconds_count", ""] == 2
    assert (found["enc_enclaves", ""], found["enc_enclaves_in_memory", ""]) == (1, 1)
    for gauge in ("enc_waiting_commits", "enc_subscriptions", "enc_websockets"):
        assert found[gauge, ""] == 0
    assert found["process_resident_memory_bytes", ""] > 0


def test_waiting_commits_are_watched() -> None:
    with Served() as node, ThreadPoolExecutor(1) as pool:
        enclave = node.found(SMALL)
        with node.held_up():
            sent = pool.submit(enclave.send, "bob", "message", "x")
            node.until(lambda: node.node.intake.waiting == 1)
            assert figures(node)["enc_waiting_commits", ""] == 1
        sent.result(PATIENCE_S)
        assert figures(node)["enc_waiting_commits", ""] == 0


# Stopping


def test_a_stop_answers_what_was_accepted(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    node = Served(store=store)
    try:
        enclave = node.found(SMALL)
        commits = [enclave.commit("bob", "message", f"{i}") for i in range(3)]
        with ThreadPoolExecutor(3) as pool:
            with node.held_up():
                sent = [pool.submit(node.submit, commit) for commit in commits]
                node.until(lambda: node.node.intake.waiting == 3)
                node.begin_stop()
                node.until(lambda: not any(server.is_serving() for server in node.server.servers))
                with pytest.raises(httpx.ConnectError):
                    httpx.get(node.url + "/info", timeout=PATIENCE_S, trust_env=False)
            receipts = [future.result(PATIENCE_S) for future in sent]
    finally:
        node.stop()
    assert sorted(receipt.seq for receipt in receipts) == [1, 2, 3]
    assert {event.id for event in store.events(enclave.id, 1, 3)} == {receipt.id for receipt in receipts}
    store.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_stop_does_not_wait_for_connections_that_nothing_is_asked_on(
    certificate: Certificate, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = Served(DEV if scheme == "http" else certificate.config)
    with secured(node, certificate.authority) as lasting:
        good(lasting.get("/info"))
        node.stop()
        assert not node.server.server_state.connections
    assert "timeout" not in caplog.text


def test_every_receipt_that_was_given_is_kept_when_the_process_is_told_to_stop(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node") as node, httpx.Client(base_url=node.url, timeout=PATIENCE_S) as client:
        exp = real_now() + LIFETIME
        manifest = build_manifest(person("alice"), compact_json(SMALL), exp)
        assert client.post("/", content=encode(wire_commit(manifest))).status_code == 200
        given, begun = list[Receipt](), threading.Semaphore(0)

        def write(name: str) -> None:
            for i in range(10_000):
                commit = build_commit(person(name), manifest.enclave, "message", f"{i}", exp + i)
                try:
                    response = client.post("/", content=encode(wire_commit(commit)))
                except httpx.HTTPError:
                    return
                if response.status_code != 200:
                    assert response.status_code == 503, response.text
                    return
                given.append(parse_receipt(response.content))
                begun.release()

        with ThreadPoolExecutor(3) as pool:
            writers = [pool.submit(write, name) for name in ("alice", "bob", "carol")]
            for _ in range(30):
                assert begun.acquire(timeout=PATIENCE_S)
            node.stop()
            for writer in writers:
                writer.result(PATIENCE_S)
    store = SqliteStore(tmp_path / "node" / "enc.db")
    kept = {event.seq: event.id for event in store.events(manifest.enclave, 0, 100_000)}
    store.close()
    assert len(given) >= 30
    assert all(kept[receipt.seq] == receipt.id for receipt in given)


def real_now() -> int:
    return assembly.now_ms()
