"""Commands on one enclave: create, read, write, prove, push, migrate."""
