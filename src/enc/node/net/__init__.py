"""Which addresses the node may call."""
