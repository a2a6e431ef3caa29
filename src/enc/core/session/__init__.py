"""Session tokens and the sealed envelopes that travel under them."""
