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
    node,
    node_key,
    node_queues,
    node_enclaves,
    node_adopt,
    node_salvage,
    node_clock,
    node_ban,
    node_takedown,
    node_withhold,
    node_evacuate,
)
"""In the order of their commands in the help."""

app = node.app
_PLACES = {module.__name__: place for place, module in enumerate(MODULES)}
app.registered_commands.sort(key=lambda each: _PLACES[each.callback.__module__])  # whatever was imported first
