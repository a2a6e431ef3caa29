"""Live subscriptions to an enclave."""
