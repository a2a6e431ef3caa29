"""The node's HTTP and WebSocket API: parses requests and calls the layers below."""
