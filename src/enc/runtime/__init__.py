"""What every long-running program needs: files, locks, signals, logs, serving, settings, outbound HTTP.

Plain modules that know nothing of nodes, clients or the protocol beyond `enc.core`.
"""
