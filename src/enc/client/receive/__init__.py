"""Receives pushes: the HTTP endpoint, the inbox, delivery to callbacks, filling of gaps."""
