"""The rules of a registry: its entries, owner proofs and chains of Migrate events."""
