"""Nodes without sockets, a clock and a lying node, for the tests of apps."""
