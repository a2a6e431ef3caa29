"""Settings for requests to a node without TLS."""

import ssl

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For `verify` of httpx. Created once: for every request without a client, httpx would load all authorities again."""
