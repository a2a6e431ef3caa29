"""The figures of a node's metrics page, and its health."""

from prometheus_client.parser import text_string_to_metric_families

from tests.node.served import Served


def figures(node: Served) -> dict[tuple[str, str], float]:
    """Return the samples by name and label."""
    families = text_string_to_metric_families(node.admin("/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, "".join(s.labels.values())): s.value for s in samples}


def check_again(node: Served) -> None:
    """Discard the last result of the health check."""
    node.on_loop(lambda: setattr(node.node.pages.readiness, "_running", None))
