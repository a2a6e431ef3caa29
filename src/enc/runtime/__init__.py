"""What several programs need once: the layer between the kernel and the node and client.

Files, private files and locks; stop signals, logs and the clock; retry pauses and rate limits; the
HTTP server; settings; outbound HTTP to checked addresses. Plain modules that import `enc.core` only.
"""
