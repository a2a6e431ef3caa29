"""Audits many enclaves: whether every node followed the protocol, and if not, evidence that anyone
can check (docs/audit.md).

archive_reader    an archive's lines, from any position on, with bounded memory
event_check       checks of a single event: hashes, signatures, ids
spilling_store    the state of a log being replayed, moved to a file when it grows large
replay_task       one archive: events checked and log replayed, in one task or several
contradictions    proofs of a node that its own log contradicts: a bundle, a state
heads             signed heads, collected from files
judge             combines the results of all tasks for an enclave into a verdict
head_judge        all heads of an enclave compared with all its logs
finding           a fault, with what is needed to report and to prove it
evidence_builder  evidence for a finding
plan              the tasks, and how they are distributed
audit             the whole audit, from archives and heads to findings with evidence
collect           archives and heads from nodes and a registry
progress          what was verified, saved for the next audit
report            the results: JSON, evidence files, and an HTML page (page)
job               runs tasks on Spark; the only module that imports it
"""
