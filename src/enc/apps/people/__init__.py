"""Names of people: the address book, lookup by name, announcement in a registry."""
