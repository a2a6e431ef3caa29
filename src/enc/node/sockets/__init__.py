"""HTTP and WebSocket protocols on the socket, with limits per connection and peer."""
