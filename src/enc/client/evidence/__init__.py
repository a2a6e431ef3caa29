"""Evidence files that prove a node's misbehaviour, and their verdicts."""
