"""Proof files in which every signature is valid and exactly one rule is broken, as a lying node with its key could make
them. Python rejects each of them.
"""

import json
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from enc.client.evidence.evidence import answer_evidence, two_heads, with_cosignature
from enc.client.verify.facts import EventFact, StateFact
from enc.client.verify.proof_file import Proof
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize, wire_event
from enc.core.primitives import hashing
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import EMPTY_HASH, sha256
from enc.core.primitives.signing import CURVE_ORDER, Alg, PrivateKey
from enc.core.primitives.types import BundleProof, Commit, Event, InclusionProof, Tags
from enc.core.trees.cosigning import cosign
from enc.core.trees.state_key import shared_slot, tree_key
from tests.core.world import NO_POINT, START, person, withheld
from tests.dataview.page.proof_files import ALICE, BOB, NODE, OTHER, Made, log_of

EXP = START + 60_000
AUTO = "auto-delete"


def commit(
    made: Made,
    type_: str = "message",
    content: str = "hello",
    tags: Tags = (),
    alg: Alg = "schnorr",
    enc_v: int | None = None,
    enclave: bytes = b"",
) -> Commit:
    """Sign it as it is, even if it breaks a rule."""
    version, enclave = enc_v or made.enc_v, enclave or made.enclave
    digest = hashing.content_hash(content)
    clean = tuple(tuple(text.translate(_MARKS) for text in tag) for tag in tags) if version == 1 else tags
    hash_ = hashing.commit_hash(version, enclave, BOB.public, type_, digest, EXP, clean)
    if clean != tags:  # as if it were allowed
        text = ",".join(f"[{','.join(tag)}]" for tag in tags)
        hash_ = hashing.H(0x10, enclave, BOB.public, type_, digest, EXP, text)
    return Commit(
        hash=hash_,
        enclave=enclave,
        from_=BOB.public,
        type=type_,
        content=content,
        content_hash=digest,
        exp=EXP,
        tags=tags,
        alg=alg,
        sig=BOB.sign(alg, hash_),
    )


_MARKS = str.maketrans("", "", ",[]")


def proved(made: Made, event: Event, fact: Callable[[EventFact], EventFact] = lambda fact: fact) -> bytes:
    """Return the proof of an event in a bundle of its own, in a log that is proved in full."""
    made.waiting = [event]
    made.close({tree_key("kv", sha256(event.id)): sha256(b"x")})
    return Proof(made.enclave, made.key.public, fact(made.fact(event))).json()


def events() -> dict[str, bytes]:
    def of(enc_v: int = 2, seq: int = 1, **more: Any) -> bytes:
        made = Made(enc_v)
        made.close()
        return proved(made, finalize(commit(made, **more), NODE, START, seq))

    later = str(EXP + 1)
    return {
        "no type": of(type_=""),
        "an empty tag": of(tags=((),)),
        "auto-delete twice": of(tags=((AUTO, later), (AUTO, later))),
        "auto-delete without a time": of(tags=((AUTO,),)),
        "auto-delete with a zero before": of(tags=((AUTO, "0" + later),)),
        "auto-delete of no number": of(tags=((AUTO, "1e15"),)),
        "auto-delete beyond all numbers": of(tags=((AUTO, "9007199254740992"),)),
        "auto-delete before it expires": of(tags=((AUTO, str(EXP)),)),
        "version 1 by ecdsa": of(1, alg="ecdsa"),
        "version 1 with a comma in a tag": of(1, tags=(("a,b", "c"),)),
        "of another enclave": of(enclave=sha256(b"another")),
        "a second manifest": _second_manifest(),
        "signed by another author": _forged(),
        "signed with a high s": _high_s(),
        "erased without its hash": _erased(None),
        "a hash of another content": _erased("00" * 32),
        "a statement beside a content": _withheld(content="hello"),
        "withheld for a reason in capitals": _withheld(reason="ABUSE"),
        "withheld for a reason of two lines": _withheld(reason="abuse\n"),
        "withheld at a time below zero": _withheld(ts=-1),
        "withheld by half a key": _withheld(node="00" * 16),
        "withheld without a signature": _withheld(sig=None),
        "a manifest of another enclave": of(seq=0, type_="Manifest", content='{"enc_v":2,"x":1}'),
    } | {f"a manifest that says {text}": _manifest(text) for text in MANIFESTS}


def _second_manifest() -> bytes:
    """Return the enclave's own Manifest at another seq than 0."""
    made = Made()
    return proved(made, finalize(made.events[0], NODE, START, 1))


def _forged() -> bytes:
    made = Made()
    made.close()
    honest = commit(made)
    return proved(made, finalize(replace(honest, sig=ALICE.sign_schnorr(honest.hash)), NODE, START, 1))


def _high_s() -> bytes:
    """Return the second of the two signatures that ECDSA allows."""
    made = Made()
    made.close()
    honest = commit(made, alg="ecdsa")
    high = (CURVE_ORDER - int.from_bytes(honest.sig[32:], "big")).to_bytes(32, "big")
    return proved(made, finalize(replace(honest, sig=honest.sig[:32] + high), NODE, START, 1))


def _erased(told: str | None) -> bytes:
    made = Made()
    made.close()
    wire = json.loads(proved(made, finalize(commit(made), NODE, START, 1)))
    wire["event"]["event"] |= {"content": None} if told is None else {"content_hash": told}
    return json.dumps(wire).encode()


def _withheld(content: str | None = None, **changes: Any) -> bytes:
    """Return a proof whose event has a malformed statement, or one beside its content."""
    made = Made()
    made.close()
    wire = json.loads(proved(made, withheld(finalize(commit(made), NODE, START, 1))))
    wire["event"]["event"]["content"] = content
    wire["event"]["event"]["withheld"] |= changes
    return json.dumps(wire).encode()


MANIFESTS = (
    '{"enc_v":3}',
    '{"enc_v":2.0}',
    '{"enc_v":"2"}',
    '{"enc_v":true}',
    "[2]",
    '{"enc_v":1,"enc_v":2}',
    '{"enc_v":2,"x":9007199254740992}',
    '{"enc_v":2,"x":1e400}',
    '{"enc_v":2,"x":' + "[" * 65 + "]" * 65 + "}",
    '{"enc_v":2,"x":"\\ud800"}',
    '{"enc_v":2,}',
    "",
)


def _manifest(content: str) -> bytes:
    """Return a Manifest that follows all rules except those of its content."""
    enclave = hashing.enclave_id(2, BOB.public, hashing.content_hash(content), ())
    made = Made()
    made.enclave = enclave
    return proved(made, finalize(commit(made, "Manifest", content), NODE, START, 0))


def places() -> dict[str, bytes]:
    """Return proofs with parts for another purpose or position."""
    made, told = log_of()
    plain, last = made.fact(told["plain"]), made.fact(told["last"])
    assert plain.status_fact is not None

    def file(fact: Any) -> bytes:
        return Proof(made.enclave, NODE.public, fact).json()

    fifth = next(ids for ids, _ in made.bundles if len(ids) == 5)
    padded = next(event for event in made.events if event.id == fifth[-1])
    before = replace(last, status_fact=made.state("event_status", last.event.id, after=0))
    head = replace(plain.anchor.head, bound_sig=None)
    smaller = replace(plain.anchor, inclusion=replace(plain.anchor.inclusion, ts=6))
    fact = made.fact(padded)
    return {
        "status of another": file(replace(plain, status_fact=last.status_fact)),
        "status of the role of the same name": file(replace(plain, status_fact=made.state("rbac", plain.event.id))),
        "status from before": file(before),
        "in the padding": file(replace(fact, membership=BundleProof(5, _edge(fact.membership), 5))),
        "an unbound head": file(replace(plain, anchor=replace(plain.anchor, head=head))),
        "a path of another size": file(replace(plain, anchor=smaller)),
        "a slot of the wrong key": file(replace(made.state("kv", shared_slot("topic")), key=shared_slot("other"))),
        "both an event and a state": json.dumps(
            {**json.loads(file(plain)), "state": json.loads(file(made.state("kv", shared_slot("topic"))))["state"]}
        ).encode(),
        "something after its end": file(plain) + b"2",
        **_states(),
        **_heads(),
    }


def _heads() -> dict[str, bytes]:
    """Return proofs in a log of one bundle: with a leaf that it does not have, and with a path where there is none."""
    made = Made()
    made.close({tree_key("kv", sha256(b"x")): sha256(b"x")})
    fact = made.fact(made.events[0], status=False)
    beyond = replace(fact, anchor=replace(fact.anchor, inclusion=InclusionProof(1, 1, ())))
    leaf = hashing.log_leaf(fact.anchor.leaf.events_root, fact.anchor.leaf.state_hash)
    above = made.head(root=hashing.log_node(sha256(b"beside"), leaf))
    longer = replace(fact.anchor, inclusion=InclusionProof(1, 0, (sha256(b"beside"),)), head=above)
    root = made.edge.root()
    early = {
        name: NODE.sign_schnorr(sha256(domain + b"\xff" * 8 + (1).to_bytes(8, "big") + root)).hex()
        for name, domain in (("sig", b"enc:sth:"), ("bound_sig", b"enc:head:" + made.enclave))
    }
    past = json.loads(made.proof(fact))
    past["event"]["anchor"]["sth"] |= {"t": -1, **early}
    return {
        "a time below zero": json.dumps(past).encode(),
        "a leaf beyond the log": made.proof(beyond),
        "a path that is too long": made.proof(replace(fact, anchor=longer)),
    }


def _edge(proof: BundleProof) -> tuple[bytes, ...]:
    """Return the siblings of the place after the last of five, where the last one is repeated."""
    return (proof.s[0], *proof.s[1:])


def _states() -> dict[str, bytes]:
    """Return proofs of values that no honest tree holds, and of siblings that it does not list."""
    made = Made()
    raw = sha256(b"raw")
    values = {"rbac": bytes(32), "kv": b"\x00", "event_status": b"\x01"}
    made.close({tree_key(name, raw): value for name, value in values.items()})  # type: ignore[arg-type]
    files = {f"{name} of the wrong form": made.proof(made.state(name, raw)) for name in values}  # type: ignore[arg-type]
    made.say("more")
    made.close({tree_key("kv", raw): sha256(b"a value")})
    listed = json.loads(made.proof(made.state("kv", raw)))
    proof = listed["state"]["proof"]
    bitmap = bytearray(bytes.fromhex(proof["b"]))
    bitmap[-1] |= 1 << 7
    proof |= {"b": bitmap.hex(), "s": [*proof["s"], EMPTY_HASH.hex()]}
    return {**files, "an empty sibling that is listed": json.dumps(listed).encode()}


def moves() -> dict[str, bytes]:
    """Return proofs with Migrates that do not make the sequencer, and with an event that it did not sign."""
    made = Made()
    first = made.say("at the first node")
    away = made.move(OTHER)
    made.close()
    stray = made.say("by the one before", key=NODE)
    made.close()
    good = made.fact(first)

    def file(*migrates: Event, fact: EventFact | StateFact = good) -> bytes:
        wire = json.loads(Proof(made.enclave, made.key.public, fact).json())
        return json.dumps(wire | {"migrates": [wire_event(each) for each in migrates]}).encode()

    def migrate(
        seq: int = 5, by: PrivateKey = NODE, type_: str = "Migrate", enclave: bytes = b"", **more: Any
    ) -> Event:
        content = {"new_sequencer": OTHER.public.hex(), "prev_seq": seq - 1, "ct_root": "ab" * 32, **more}
        text = content["text"] if "text" in content else compact_json(content)
        return finalize(build_commit(ALICE, enclave or made.enclave, type_, str(text), EXP), by, START, seq)

    third = person("node3")
    half = f'{{"new_sequencer":"{OTHER.public.hex()}","prev_seq":4.0,"ct_root":"{"ab" * 32}"}}'
    chain = [migrate(seq, OTHER) for seq in range(10, 75)]
    assert good.event.sequencer == NODE.public
    return {
        "migrates to another": file(migrate(new_sequencer=third.public.hex())),
        "migrates that go on elsewhere": file(away, migrate(9, OTHER, new_sequencer=third.public.hex())),
        "an event of the one before": file(away, fact=made.fact(stray)),
        "a migrate by a stranger": file(away, migrate(9, third, new_sequencer=NODE.public.hex()), migrate(12, NODE)),
        "a migrate of another enclave": file(migrate(enclave=sha256(b"another"))),
        "a pause": file(migrate(type_="Pause")),
        "a migrate without the event before": file(migrate(prev_seq=3)),
        "a migrate of a negative place": file(migrate(prev_seq=-1)),
        "a migrate of half a place": file(migrate(text=half)),
        "a migrate to no point": file(migrate(new_sequencer=NO_POINT), migrate(9, OTHER)),
        "a migrate before all": file(migrate(0, prev_seq=-1), fact=made.state("kv", sha256(b"x"))),
        "a migrate of null": file(migrate(text="null")),
        "a migrate without a root": file(migrate(ct_root="ab")),
        "a migrate that is long": file(migrate(more="x" * (16 << 10))),
        "a migrate of no object": file(migrate(text="[]")),
        "a migrate that was erased": file(replace(away, content=None)),
        "migrates out of order": file(migrate(9), migrate(9, OTHER)),
        "too many migrates": file(*chain),
    }


def witnessed() -> dict[str, bytes]:
    """Return evidence of a fork that convicts, with a false co-signature of a witness."""
    made, _ = log_of()
    first, then = made.head(), made.head(root=sha256(b"false"))
    fork = two_heads("fork", made.enclave, NODE.public, "", first, then)
    true = cosign(BOB, made.enclave, NODE.public, first, START)
    words = answer_evidence("answer", made.enclave, OTHER.public, "", b"words")
    return {
        "a witness's false signature": with_cosignature(
            fork, replace(true, sig=ALICE.sign_schnorr(sha256(b"x")))
        ).json(),
        "a witness of another enclave": with_cosignature(fork, replace(true, enclave=sha256(b"another"))).json(),
        "a witness of another sequencer": with_cosignature(
            fork, cosign(BOB, made.enclave, OTHER.public, first, START)
        ).json(),
        "a witness of another head": with_cosignature(
            fork, cosign(BOB, made.enclave, NODE.public, made.head(t=9), START)
        ).json(),
        "heads of another in a file of words": with_cosignature(
            replace(words, parts={**words.parts, "heads": fork.parts["heads"]}), true
        ).json(),
    }


def bent() -> dict[str, bytes]:
    return {**events(), **places(), **moves(), **witnessed()}
