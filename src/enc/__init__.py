"""ENC: verifiable, sovereign, access-controlled logs."""

__version__ = "0.1.0"
