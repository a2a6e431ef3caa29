"""Sending messages, sealed under the last epoch that counts."""

import os

from enc.apps.group.epoch_maker import RACES, EpochMaker
from enc.apps.group.errors import NotAMember, NotSealable
from enc.apps.group.messages import AGAIN, REPLY, TO, tag
from enc.apps.group.rights import check_deleting, check_text, check_writing
from enc.apps.group.views import Sent
from enc.client import SendAttempt
from enc.client.enclave.writes import Id, as_bytes
from enc.core.errors import Expired
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt, Tags
from enc.core.sealed_forms.group_envelope import NONCE12
from enc.core.sealed_forms.group_message import seal_message


class MessageActions(EpochMaker):
    def say(self, text: str, *, reply_to: Id | None = None, attempt: SendAttempt | None = None) -> Sent:
        """Send a message, optionally as a reply to an entry.

        `attempt`: to send the same message again after an error, give the same one to both calls.
        """
        to = None if reply_to is None else as_bytes(reply_to, "reply_to")
        return self._sealed("message", text, to, attempt)

    def announce(self, text: str, *, attempt: SendAttempt | None = None) -> Sent:
        """Send an announcement, as an admin. `attempt`: as for `say`."""
        return self._sealed("notice", text, attempt=attempt)

    def react(self, entry: Id, text: str, *, attempt: SendAttempt | None = None) -> Sent:
        """React to a message or an announcement; `text` is short, such as one emoji.

        `attempt`: as for `say`.
        """
        return self._sealed("reaction", text, as_bytes(entry, "entry"), attempt)

    def edit(self, entry: Id, text: str, *, attempt: SendAttempt | None = None) -> Sent:
        """Replace the text of your own entry. The old one is erased at the node.

        `attempt`: as for `say`.
        """
        return self._sealed("Update", text, as_bytes(entry, "entry"), attempt)

    def delete(self, event: Id, *, note: str | None = None) -> Receipt:
        """Delete your own message, announcement or reaction; as an admin, any message or
        announcement.

        The node can read `note`.
        """
        with self._lock:
            self._ready()
            id_ = as_bytes(event, "event")
            check_deleting(self._fold, id_)
            is_mine = self._fold.membership.author_of(id_) == self.me
            content = {"reason": "author" if is_mine else "moderator"} | ({} if note is None else {"note": note})
            return self._write("Delete", compact_json(content), (tag(TO, id_),))

    # Sealing

    def _sealed(self, type_: str, text: str, to: bytes | None = None, attempt: SendAttempt | None = None) -> Sent:
        check_text(text)
        tags: Tags = () if to is None else (tag(REPLY if type_ == "message" else TO, to),)
        attempt = SendAttempt() if attempt is None else attempt
        with self._lock:
            self._ready()
            again: Tags = ()
            for _ in range(RACES):
                receipt = self._sent_again(attempt)
                if receipt is None:
                    check_writing(self._fold, type_, to)
                    n, sender_seq, content = self._seal(text)
                    attempt.commit = self._enclave.prepare(type_, content, tags=(*tags, *again))
                    attempt.about = n, sender_seq
                    receipt = self._send(attempt.commit)
                (n, _), attempt.commit = attempt.about, None
                verdict = self._fold.messages.verdicts.get(receipt.id)
                if verdict is None:
                    return Sent(id=receipt.id, seq=receipt.seq, epoch=n, is_stale=self._fold.is_stale)
                if not verdict.is_repeat:
                    raise NotSealable(f"the sent event does not open: {verdict.why}")
                # another device of ours used the same key first
                again = () if type_ == "Update" else (tag(AGAIN, receipt.id),)
            raise NotSealable("another device of yours keeps using the same keys first: try again")

    def _sent_again(self, attempt: SendAttempt) -> Receipt | None:
        """Send the commit of an earlier attempt again; None if it has none, or must be sealed again.

        What the log does not have is sealed anew once there is another epoch, so that people who
        left do not get its key.
        """
        if attempt.commit is None:
            return None
        n, sender_seq = attempt.about
        last = self._fold.epochs.last
        is_last = last is not None and last.n == n
        if not is_last and not self._fold.messages.is_used(self.me, n, sender_seq):
            return None
        try:
            return self._send(attempt.commit)
        except Expired:  # the node never accepted it, and never will
            return None

    def _seal(self, text: str) -> tuple[int, int, str]:
        """Return the epoch, the number in it, and the sealed content."""
        fold = self._fold
        if self.me not in fold.membership.members:
            raise NotAMember("only members may write in a group")
        last = fold.epochs.last
        chain = None if last is None else fold.epochs.chain(last.n, self.me)
        if last is None or chain is None:
            view = fold.last_epoch()
            raise NotSealable(
                f"the last epoch does not open for you ({view.trouble}): an admin must make a new one"
                if view is not None and view.trouble
                else "no epoch includes you yet: an admin's client makes one when it is next online"
            )
        sender_seq = fold.messages.next_sender_seq(self.me, last.n, fold.membership.gaps)
        return last.n, sender_seq, seal_message(chain, last.n, sender_seq, text, os.urandom(NONCE12))
