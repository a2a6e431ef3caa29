"""Audits many enclaves: whether every node followed the protocol, and if not, evidence that anyone
can check (docs/audit.md).

reading    an archive's lines, from any position on, with bounded memory
piece      checks of a single event: hashes, signatures, ids
spill      the state of a log being replayed, moved to a file when it grows large
court      one archive: its events checked and its log replayed (enc.core.machine.audit_replay), in one task or several
lies       proofs of a node that its own log contradicts: a bundle, a state
heads      signed heads, collected from files
verdict    the results of all tasks for an enclave, each fault once; all heads compared with all logs
finding    a fault, with what is needed to report and to prove it
proving    evidence for a finding
plan       the tasks, and how they are distributed
audit      the whole audit, from archives and heads to findings with evidence
collecting archives and heads from nodes and a registry
progress   what was verified, saved for the next audit
report     the results: JSON, evidence files, and an HTML page (page)
job        runs tasks on Spark; the only module that imports it
"""
