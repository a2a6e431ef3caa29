"""A personal store on real nodes: its profile, posts and documents, from more than one device."""

import json

import pytest

from enc.apps import Personal
from enc.apps.personal.documents import MAX_PLAINTEXT, NoDocument
from enc.apps.personal.send_notice import NoPersonalStore
from enc.client import Identity
from enc.core.errors import DecryptFailed, EventNotFound, MisuseError, Unauthorized
from enc.core.primitives.sealing import Truncated
from enc.core.sealed_forms.personal import seal_private
from enc.core.trees.state_key import shared_slot
from tests.apps.personal.conftest import Street


def test_a_store_is_known_in_the_registry_under_its_label_and_its_owner_s_name(street: Street) -> None:
    client = street.client()
    client.register_identity({"other": b"\x01" * 32})
    store = street.store(client, display_name="Ada L.")
    known = client.lookup(client.identity.public, fresh=True)
    assert known.enclaves == {"other": b"\x01" * 32, "personal": store.enclave.id}
    assert known.sub_pub == client.identity.sub_key().public
    (row,) = (row for row in client.listing(app="personal", q="ada l.")[0] if row["holder"] == client.identity.hex)
    assert (row["enclave_id"], row["meta"]) == (store.enclave.hex, {"name": "Ada L."})
    again = Personal.find(street.client(client.identity, None))
    assert again.enclave.id == store.enclave.id
    assert again.profile().display_name == "Ada L."
    store.set_profile(display_name="Ada King")
    assert client.resolve(store.enclave.id, fresh=True).record.entry.meta == {"name": "Ada King"}


def test_a_store_that_the_registry_missed_is_announced_later(street: Street) -> None:
    lone = street.client(known=False)
    store = street.store(lone)
    assert not store.announce("Ada")
    known = street.client(lone.identity)
    assert Personal(known, store.enclave.id).announce("Ada")
    assert Personal.find(street.client(lone.identity)).enclave.id == store.enclave.id


def test_who_registers_no_sub_key_gets_none(street: Street) -> None:
    client = street.client()
    client.register_identity({}, sub_key=False)
    street.store(client)
    assert client.lookup(client.identity.public, fresh=True).sub_pub is None


def test_a_store_is_found_by_the_book_where_there_is_no_registry(street: Street) -> None:
    client, book = street.client(known=False), street.book()
    with pytest.raises(NoPersonalStore):
        Personal.find(client, book=book)
    with pytest.raises(NoPersonalStore):
        Personal.find(street.client())
    store = street.store(client, book=book)
    elsewhere = street.client(client.identity, "b", known=False)
    for device in (client, elsewhere):
        found = Personal.find(device, book=book)
        assert (found.enclave.id, found.enclave.url) == (store.enclave.id, client.url)
        assert found.profile().fields == {}


def test_a_profile_is_changed_field_by_field_and_proved(street: Street) -> None:
    store = street.store(street.client(known=False))
    assert (store.profile().display_name, store.profile().proved) == (None, True)
    store.set_profile(display_name="Ada", bio="counts", pronouns="she")
    store.set_profile(bio=None, avatar="https://example.org/a.png")
    found = store.profile()
    assert found.fields == {"display_name": "Ada", "avatar": "https://example.org/a.png", "pronouns": "she"}
    assert (found.display_name, found.bio, found.avatar) == ("Ada", None, "https://example.org/a.png")
    assert found.proved
    assert store.enclave.state("kv", shared_slot("profile")).value is not None
    store.set_profile(display_name=None, avatar=None, pronouns=None)
    assert store.profile().fields == {}
    assert store.enclave.state("kv", shared_slot("profile")).value is None
    with pytest.raises(MisuseError, match=r"^bio"):
        store.set_profile(bio=7)


def test_what_another_program_put_into_the_profile_is_no_profile(street: Street) -> None:
    store = street.store(street.client(known=False))
    store.enclave.shared("profile", ["odd"])
    assert store.profile().fields == {}
    store.set_profile(display_name="Ada")
    assert store.profile().fields == {"display_name": "Ada"}
    store.enclave.shared("profile", {"display_name": 7})
    assert store.profile().display_name is None


def test_posts_are_plain_and_are_edited_and_deleted(street: Street) -> None:
    store = street.store(street.client(known=False))
    one, two = store.post("one"), store.post("two", lang="en")
    item = store.enclave.event(one.id)
    assert item is not None
    assert item.content == '{"kind":"post","text":"one"}'
    store.edit_post(one.id, "uno")
    store.delete_post(two.id)
    (post,) = store.posts()
    assert (post.id, json.loads(post.content or "")) == (one.id, {"kind": "post", "text": "uno"})


def test_documents_are_kept_changed_searched_and_removed_on_every_device(street: Street) -> None:
    client = street.client(known=False)
    store = street.store(client)
    diary = store.add("Diary", "It rained.", mood="grey")
    recipe = store.add("Soup", "Leek, potato", kind="recipe")
    gone = store.add("Gone", "x")
    device = Personal(street.client(client.identity, known=False), store.enclave.id)
    assert [each.name for each in device.documents()] == ["Diary", "Soup", "Gone"]
    store.change(diary.id, text="It RAINED again.")
    store.change(diary.id, name="Dear diary")
    store.remove(gone.id)
    for each in (store, device, Personal(client, store.enclave.id)):
        assert [(d.name, d.text, d.kind, d.more) for d in each.documents()] == [
            ("Dear diary", "It RAINED again.", "note", {"mood": "grey"}),
            ("Soup", "Leek, potato", "recipe", {}),
        ]
        assert [d.id for d in each.documents("rained DEAR")] == [diary.id]
        assert [d.id for d in each.documents("recipe")] == [recipe.id]
        assert each.documents("rained leek") == []
    assert device.document(recipe.id).text == "Leek, potato"
    for which in (gone.id, store.post("hello").id):
        with pytest.raises(EventNotFound):
            device.document(which)
    with pytest.raises(EventNotFound):
        store.change(gone.id, text="y")


def test_a_document_has_a_form_and_a_size(street: Street) -> None:
    store = street.store(street.client(known=False))
    with pytest.raises(MisuseError, match=r"^text"):
        store.add("name", 7)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="at most"):
        store.add("name", "x" * MAX_PLAINTEXT)
    whole = store.add("name", "x" * (MAX_PLAINTEXT - 50))
    assert len(store.document(whole.id).text) == MAX_PLAINTEXT - 50


def test_what_does_not_open_is_shown_apart_with_its_own_error(street: Street) -> None:
    client = street.client(known=False)
    store, key, other = street.store(client), client.identity.key, Identity.new()
    good = store.add("good", "one")
    enclave = store.enclave.id
    sealed = json.loads(seal_private(key, enclave, b"{}", bytes(24)))
    wrong = {
        "wrong key": (seal_private(other.key, enclave, b"{}", bytes(24)), DecryptFailed),
        "of another enclave": (seal_private(key, bytes(32), b"{}", bytes(24)), DecryptFailed),
        "cut to nothing": (json.dumps({**sealed, "ciphertext": sealed["ciphertext"][:30]}), Truncated),
        "cut": (json.dumps({**sealed, "ciphertext": sealed["ciphertext"][:-2]}), DecryptFailed),
        "swapped nonce": (json.dumps({**sealed, "nonce": "01" * 24}), DecryptFailed),
        "not sealed": ("hello", DecryptFailed),
        "no document": (seal_private(key, enclave, b'{"kind":"a","name":"b"}', bytes(24)), NoDocument),
        "no JSON": (seal_private(key, enclave, b"\xff", bytes(24)), NoDocument),
        "a list": (seal_private(key, enclave, b"[]", bytes(24)), NoDocument),
    }
    ids = {store.enclave.commit("private", content).id: error for content, error in wrong.values()}
    assert [each.id for each in store.documents()] == [good.id]
    assert {each.id: type(each.error) for each in store.unreadable()} == ids
    for id_, error in ids.items():
        with pytest.raises(error):
            store.document(id_)
    thief = Personal(street.client(other, known=False), enclave)
    with pytest.raises(Unauthorized):
        thief.documents()


def test_dataviews_are_granted_and_revoked(street: Street) -> None:
    store, view = street.store(street.client(known=False)), Identity.new()
    assert store.dataviews() == []
    store.grant_dataview(view.public, endpoint="https://example.org/push")
    assert [member.identity for member in store.dataviews()] == [view.public]
    store.revoke_dataview(view.public)
    assert store.dataviews() == []


@pytest.mark.parametrize("proved", [True, False])
def test_a_dataview_is_listed_as_soon_as_it_is_granted(street: Street, proved: bool) -> None:
    """By the log; it reports that no closed bundle proves it yet."""
    bundle = {"size": 1} if proved else {"size": 256, "timeout": 3_600_000}
    store, (one, two) = (
        street.store(street.client(known=False), bundle=bundle),
        sorted([Identity.new().public, Identity.new().public]),
    )
    store.grant_dataview(one)
    operations = [{"type": "Grant", "target": two.hex(), "trait": "dataview"}]
    store.enclave.commit("AC_Bundle", {"operations": operations})
    assert [(each.identity, each.proved) for each in store.dataviews()] == [(one, proved), (two, proved)]
    store.revoke_dataview(one)
    assert [each.identity for each in store.dataviews()] == [two]


def test_a_second_store_is_created_on_purpose_alone(street: Street) -> None:
    client = street.client()
    store = street.store(client)
    with pytest.raises(MisuseError, match="already"):
        street.store(client)
    assert Personal.find(client).enclave.id == store.enclave.id
    assert street.store(client, again=True).enclave.id != store.enclave.id


def test_the_gate_of_notices(street: Street) -> None:
    store = street.store(street.client(known=False))
    assert store.is_open()
    store.set_open(False)
    assert not store.is_open()
    store.set_open(True)
    assert store.is_open()
