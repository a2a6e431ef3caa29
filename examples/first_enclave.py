"""What `make demo` shows."""

print("The demo will found an enclave, commit to it, prove an event and catch a lie.")
