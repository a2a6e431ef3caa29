"""Alert rules and the dashboard: correct for Prometheus, and about metrics that a node exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.deploy.tools import DEPLOY, output, tool
from tests.node.metrics_page import figures
from tests.node.pushing import CONFIG, room
from tests.node.served import Served

RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "enc-node.json"
VARIABLES = {"$job": "enc-node", "$instance": ".*", "$__rate_interval": "5m"}


def alerts() -> list[dict[str, str]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict]:
    return list(json.loads(DASHBOARD.read_text())["panels"])


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in alerts())
    for expr in (target["expr"] for panel in panels() for target in panel["targets"]):
        for name, value in VARIABLES.items():
            expr = expr.replace(name, value)
        yield expr


def test_promtool_accepts_the_rules_and_their_tests() -> None:
    assert "SUCCESS" in output(tool("promtool"), "check", "rules", str(RULES))
    assert "SUCCESS" in output(tool("promtool"), "test", "rules", str(RULES.with_name("alerts_test.yml")))


def test_promtool_accepts_the_configuration_and_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert "SUCCESS" in output(tool("promtool"), "check", "rules", str(file))
    assert "SUCCESS" in output(tool("promtool"), "check", "config", str(RULES.with_name("scrape.yml")))


def test_each_alert_is_tested_and_says_what_to_do() -> None:
    tested = RULES.with_name("alerts_test.yml").read_text()
    for rule in alerts():
        assert f'alertname="{rule["alert"]}"' in tested
        assert set(rule["annotations"]) == {"summary", "action"}


def test_a_node_exports_every_metric_that_is_named() -> None:
    with Served(CONFIG) as node:
        room(node)  # a commit and a request: counters with labels begin with the first
        node.get("/info")
        exported = {name for name, _ in figures(node)}
    for expr in expressions():
        plain = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", expr)
        named = set(re.findall(r"\b(?:enc|process)_\w+|\bup\b", plain))
        assert named, expr
        assert named - {"up"} <= exported, expr
