"""What a client can do with one enclave: read, write, search, back up."""
