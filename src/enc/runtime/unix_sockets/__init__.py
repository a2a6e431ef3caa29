"""Unix sockets for one user, and the messages over them: each is its length and that many bytes."""
