"""The state machine of an enclave: judge, apply and seal commits; replay and audit whole logs."""
