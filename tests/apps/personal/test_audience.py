"""Who can see a post: by the manifest of the store, and by the rights that the log gives."""

from typing import Any

from enc.apps import Personal
from enc.apps.personal import Audience
from enc.client import Identity
from enc.client.enclave.templates import template
from tests.apps.personal.conftest import Street

NOBODY = Audience(False, (), (), ())


def changed(street: Street, *customs: dict[str, Any], **changes: Any) -> Personal:
    """Return a store with more rules for posts than the template."""
    client = street.client()
    manifest = template("personal", client.identity.public)
    more = {"customs": [*manifest["customs"], *customs], "meta": {"nonce": Identity.new().hex}, **changes}
    return Personal(client, client.create({**manifest, **more}).id)


def test_by_itself_a_post_is_for_the_owner_alone(street: Street) -> None:
    assert street.store(street.client()).audience() == NOBODY


def test_grants_and_revocations_count_at_once(street: Street) -> None:
    store, one, two = street.store(street.client(), bundle={"size": 99}), Identity.new(), Identity.new()
    store.grant_dataview(one.public)
    store.enclave.ac_bundle([{"type": "Grant", "target": two.hex, "trait": "dataview"}])
    assert store.audience() == Audience(False, (), (one.public, two.public), ())
    store.revoke_dataview(one.public)
    assert store.audience() == Audience(False, (), (two.public,), ())


def test_anybody_may_read_what_the_manifest_makes_public(street: Street) -> None:
    store = changed(street, {"event": "public", "operator": "Public", "ops": ["R"]})
    assert store.audience().is_public
    old = street.client()
    assert Personal(old, old.create("personal-v1").id).audience().is_public


def test_readers_and_who_is_only_notified(street: Street) -> None:
    fan, bell, both = Identity.new(), Identity.new(), Identity.new()
    store = changed(
        street,
        {"event": "public", "operator": "fan", "ops": ["R"]},
        {"event": "public", "operator": ["bell", "loud"], "ops": ["N"]},
        {"event": "public", "operator": "loud", "ops": ["P"]},
        traits=["dataview(1)", "fan(1)", "bell(1)", "loud(1)"],
        grants=[{"event": "Grant", "operator": ["OWNER"], "scope": ["OUTSIDER"], "trait": ["fan", "bell", "loud"]}],
    )
    store.enclave.grant(fan.public, "fan")
    store.enclave.grant(bell.public, "bell")
    store.enclave.grant(both.public, "loud")
    assert store.audience() == Audience(False, (fan.public,), (both.public,), (bell.public,))


def test_a_closed_gate_keeps_readers_out(street: Street) -> None:
    gate = {"operator": ["OWNER"]}
    store = changed(street, {"event": "public", "operator": "Public", "ops": ["R"], "alias": "door", "gate": gate})
    assert store.audience().is_public
    store.enclave.gate("door", open=False)
    assert store.audience() == NOBODY
    store.enclave.gate("door", open=True)
    assert store.audience().is_public


def test_it_says_if_rights_may_be_hidden_from_the_owner(street: Street) -> None:
    store = changed(street, readers=[{"type": "OWNER", "reads": "Manifest"}, {"type": "OWNER", "reads": "public"}])
    assert not store.audience().is_complete
