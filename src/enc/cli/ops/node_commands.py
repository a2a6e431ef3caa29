"""`enc node`: importing a module adds its commands."""

from enc.cli.ops import (
    node,
    node_adopt,
    node_ban,
    node_clock,
    node_enclaves,
    node_evacuate,
    node_key,
    node_queues,
    node_salvage,
    node_takedown,
    node_withhold,
)

MODULES = (
    node_key,
    node_queues,
    node_enclaves,
    node_adopt,
    node_clock,
    node_ban,
    node_takedown,
    node_withhold,
    node_evacuate,
    node_salvage,
)

app = node.app
