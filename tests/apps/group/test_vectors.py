"""A group's log made by an independent program, and what every reader must get from it."""

import json
import re
from runpy import run_path
from typing import Any

import pytest

from enc.apps.group import GroupFold, Keys
from enc.apps.group.manifest import RULES
from enc.core.log.event import check_event, parse_event
from enc.core.primitives.signing import PrivateKey
from tests.core.vectors import FOLDER, load

LOG: dict[str, Any] = load("group_log")
PEOPLE = {name: PrivateKey(bytes.fromhex(pair["priv"])) for name, pair in LOG["people"].items()}
NAMES = {key.public: name for name, key in PEOPLE.items()}
EVENTS = [parse_event(json.dumps(wire)) for wire in LOG["events"]]


def test_the_manifest_is_the_examples() -> None:
    assert load("group_manifest") == RULES
    assert {name: key.public.hex() for name, key in PEOPLE.items()} == {n: p["pub"] for n, p in LOG["people"].items()}


@pytest.mark.parametrize("reader", [*PEOPLE, None])
def test_every_event_for_every_reader(reader: str | None) -> None:
    keys = Keys(PEOPLE[reader].public, PEOPLE[reader]) if reader else Keys(bytes(32))
    fold = GroupFold(keys, bytes.fromhex(LOG["enclave"]))
    for event, after in zip(EVENTS, LOG["after_each_event"], strict=True):
        check_event(event, 2)
        change = fold.apply(event)
        assert sorted(NAMES[key] for key in fold.membership.members) == after["members"]
        counts = None if change.epoch is None else "counts" if change.epoch.counts else "ignored"
        assert counts == after.get("epoch"), event.seq
        if "text" in after:
            is_mine = reader in after["readers"]
            shown = change.reaction if change.kind == "reaction" else change.entry
            assert (None if shown is None else shown.text) == (after["text"] if is_mine else None), event.seq
            assert change.kind == "reaction" or (change.entry is not None and change.entry.is_late == ("late" in after))


def test_every_epoch() -> None:
    for name, key in PEOPLE.items():
        fold = GroupFold(Keys(key.public, key))
        for event in EVENTS:
            fold.apply(event)
        assert [made.n for made in fold.epochs.counted] == [epoch["n"] for epoch in LOG["epochs"]]
        for epoch in LOG["epochs"]:
            held = fold.epochs.secret(epoch["n"])
            assert (held is not None) == (name in epoch["members"])
            if held is not None:
                assert (held.root_secret.hex(), held.secret.hex()) == (epoch["root_secret"], epoch["epoch_secret"])


def test_the_generator_makes_the_same_bytes() -> None:
    assert run_path(str(FOLDER / "make_group_log.py"))["text"]() == (FOLDER / "group_log.json").read_text()


def test_the_generator_shares_nothing_with_the_app() -> None:
    text = (FOLDER / "make_group_log.py").read_text()
    assert "enc" not in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
