"""The protocol as pure functions and frozen types.

Nothing here reads a file, a clock or a random number, and nothing logs: time, nonces and stored
hashes are arguments.
"""
