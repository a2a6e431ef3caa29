"""The control socket, by which commands of the operator act on the running node."""
