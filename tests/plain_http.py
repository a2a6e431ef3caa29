"""For requests to a node without TLS."""

import ssl

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""As `verify` of httpx. Made once: httpx would load all authorities anew for every request without a client."""
