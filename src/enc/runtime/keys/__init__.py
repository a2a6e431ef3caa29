"""Private keys outside a program's memory: key files, passphrases, and processes that sign."""
