"""HTTP and WebSocket servers on a socket, with limits per connection and peer."""
