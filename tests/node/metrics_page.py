"""The figures of a node's metrics page."""

from prometheus_client.parser import text_string_to_metric_families

from tests.node.served import Served


def figures(node: Served) -> dict[tuple[str, str], float]:
    """Return the samples by name and label."""
    families = text_string_to_metric_families(node.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, "".join(s.labels.values())): s.value for s in samples}
