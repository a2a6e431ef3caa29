"""Audit at scale: whether every node kept its word, and if not, evidence that anybody can check (docs/audit.md).

reading    an archive's lines, from any place on, with bounded memory
piece      what an event proves by itself: hashes, signatures, ids
spill      what lies behind a log in trial, in a file once it is much
court      one archive: its events checked and its log tried (enc.core.trial), in one pass or in several tasks
lies       what a node proved, and its own log contradicts: a bundle, a state
heads      signed heads, collected from files
verdict    what all tasks found of an enclave, each fault told once; all heads held against all logs
finding    a fault, with what it takes to tell it and to prove it
proving    evidence for a finding
plan       which tasks there are, and how they are shared out
audit      all of it, from archives and heads to findings with evidence
collecting archives and heads from nodes and a registry
progress   what was verified, kept for the next audit
report     what was found: JSON, evidence files, and a page for people (page)
job        the one module that knows Spark
"""
