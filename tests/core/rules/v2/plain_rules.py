"""The rules of version 2 as the protocol states them, entry by entry: what the policy must agree with."""

from collections.abc import Iterable
from typing import Any

from enc.core.rules.policy_types import Subject
from enc.core.rules.v2.access import PolicyV2
from enc.core.rules.v2.manifest_parts import RuleEntry

Masks = dict[str, int]
"""Bitmasks by identity."""


class PlainError(Exception):
    """A rejection: its code."""


def matching(policy: PolicyV2, op: str, subject: Subject, columns: frozenset[str]) -> list[RuleEntry]:
    return [
        entry
        for entry in policy.entries
        if entry.event in (subject.type, "*")
        and (entry.event == "*" or entry.kinds & {subject.kind, None})
        and op in entry.ops | entry.denies
        and entry.columns & columns
    ]


def giving(op: str, entries: Iterable[RuleEntry]) -> list[RuleEntry]:
    entries = list(entries)
    return [] if any(op in entry.denies for entry in entries) else [entry for entry in entries if op in entry.ops]


def rights(policy: PolicyV2, subject: Subject, bitmask: int, *, is_author: bool, closed: frozenset[str]) -> set[str]:
    columns = policy.columns_of(bitmask, ("Self", "Sender") if is_author else ())
    return {
        op
        for op in "RPN"
        if giving(op, [entry for entry in matching(policy, op, subject, columns) if entry.alias not in closed])
    }


def operate(policy: PolicyV2, actor: str, operation: dict[str, Any], masks: Masks, closed: set[str]) -> None:
    """Apply one operation of an AC_Bundle, or raise PlainError."""
    type_ = operation["type"]
    if type_ == "Gate":
        _turn(policy, operation, masks.get(actor, 0), closed)
        return
    target, own = operation["target"], masks.get(actor, 0)
    columns = policy.columns_of(own, ["Self"] if actor == target and type_ != "Transfer" else [])
    given, mask = _authorise(policy, operation, columns, closed), masks.get(target, 0)
    if type_ == "Transfer":
        _transfer(policy, actor, operation, given, masks)
        return
    if type_ == "Move" and policy.state_of(mask) != operation["from"]:
        raise PlainError("STATE_MISMATCH")
    if type_ != "Move":
        given = _in_scope(policy, given, mask, "INVALID_STATE_FOR_GRANT")
    authority = columns & frozenset().union(*(entry.columns for entry in given))
    _check_rank(policy, own, mask, authority, is_self=actor == target)
    if type_ == "Move":
        keep = any(entry.preserve for entry in given)
        masks[target] = policy.with_state(mask, operation["to"], keep_traits=keep)
    else:
        bit = 1 << policy.traits[operation["trait"]].bit
        masks[target] = mask | bit if type_ == "Grant" else mask & ~bit


def _turn(policy: PolicyV2, operation: dict[str, Any], own: int, closed: set[str]) -> None:
    alias = operation["alias"]
    if not policy.gates.get(alias, frozenset()) & policy.columns_of(own):
        raise PlainError("UNAUTHORIZED")
    (closed.add if operation["state"] == "closed" else closed.discard)(alias)


def _transfer(policy: PolicyV2, actor: str, operation: dict[str, Any], given: list[RuleEntry], masks: Masks) -> None:
    target, bit = operation["target"], 1 << policy.traits[operation["trait"]].bit
    mask = masks.get(target, 0)
    if target == actor:
        raise PlainError("INVALID_TRANSFER_TARGET")
    if mask & bit:
        raise PlainError("TRAIT_ALREADY_HELD")
    _in_scope(policy, given, mask, "INVALID_STATE_FOR_TRANSFER")
    masks[actor], masks[target] = masks.get(actor, 0) & ~bit, mask | bit


def _authorise(
    policy: PolicyV2, operation: dict[str, Any], columns: frozenset[str], closed: set[str]
) -> list[RuleEntry]:
    type_ = operation["type"]
    subject = Subject(type_, trait=operation.get("trait"))
    if type_ == "Move":
        subject = Subject(type_, from_state=operation["from"], to_state=operation["to"])
    found = matching(policy, "C", subject, columns)
    given = giving("C", [entry for entry in found if entry.alias not in closed])
    if not given:
        would = giving("C", found)
        raise PlainError(f"GATE_CLOSED:{would[0].alias}" if would else "UNAUTHORIZED")
    return given


def _in_scope(policy: PolicyV2, given: list[RuleEntry], mask: int, code: str) -> list[RuleEntry]:
    found = [entry for entry in given if policy.state_of(mask) in (entry.scope or ())]
    if not found:
        raise PlainError(code)
    return found


def _check_rank(policy: PolicyV2, own: int, mask: int, authority: frozenset[str], *, is_self: bool) -> None:
    def rank(held: int) -> int | None:
        return min((policy.traits[name].rank for name in policy.traits_of(held)), default=None)

    theirs, mine = rank(mask), rank(own)
    if is_self or theirs is None or not authority <= policy.traits.keys():
        return
    if mine is None or mine >= theirs:
        raise PlainError("RANK_INSUFFICIENT")
