"""Steps of the demo: the Spark pipeline, its views over HTTP, and the page."""

import json
import time
import urllib.request
from typing import Any

from rich.table import Table

from demo.stage import Failed, Stage, free_port
from enc.core.errors import MisuseError

PATIENCE_S = 60.0


def foresee(stage: Stage) -> None:
    """Warn at the start, not after minutes, if these steps cannot run on this machine."""
    from enc.dataview.lake.session import check_requirements

    try:
        check_requirements()
    except MisuseError as e:
        stage.warn(f"The steps with Spark will fail here: {e.message}.")


def pipeline(stage: Stage) -> None:
    """Everything through Spark"""
    stage.explain(
        "A DataView reads the events of many enclaves, verifies every signature and every rule again, and writes them "
        "to tables. It reads as Ada and as Bob, and so gets what they may read; sealed content stays sealed. This step "
        "takes longest: Spark starts, and every view is built and tested."
    )
    url, _, rest = stage.known["registry"].partition("#")
    id_, _, key = rest.partition(":")
    registry = f"registry={url};registryEnclave={id_};registryKey={key};enclaves=*"
    pulls = [f"--pull={registry};keyFile={who}/.local/share/enc/keys/default.key" for who in ("ada", "bob")]
    stage.known["pulls"] = "\n".join(pulls)
    kept = ("--lake", str(stage.folder / "lake"), "--database", "serving.db")
    made = stage.enc("operator", "dataview", "run", "--once", "--small", *pulls, *kept, quiet=True)
    views = [line.partition("\t")[0] for line in made.splitlines() if "\t" in line]  # without Spark's own output
    stage.output(f"views: {', '.join(views)}")
    stage.holds("all views are built, and pass their tests", "timeline" in made)


def tables(stage: Stage) -> None:
    """The tables, over HTTP"""
    stage.explain(
        "Views are served as JSON, CSV or Arrow to the readers in the settings; here to everybody. The server of views "
        "is not trusted either: with verify=1 it must return the proofs."
    )
    _settings(stage)
    ready = stage.start("operator", "DataView", "dataview", "serve", "--config", "serve.toml", "--json")
    stage.known["page"] = ready["url"]
    who = {stage.known[name]: name for name in ("ada", "bob", "cleo")}
    what = {stage.known[name]: name for name in ("harbour", "ledger")}
    members = _rows(stage, "members", "enclave=" + stage.known["harbour"])
    _draw(stage, "members", [(what.get(r["enclave"], ""), who.get(r["identity"], ""), r["state"]) for r in members])
    activity = _rows(stage, "activity_hourly", "limit=1000")
    counts = dict[str, int]()
    for row in activity:
        counts[row["type"]] = counts.get(row["type"], 0) + row["events"]
    _draw(stage, "activity", [(kind, str(n)) for kind, n in sorted(counts.items(), key=lambda each: -each[1])])
    timeline = _rows(stage, "timeline", "order=posted_at")
    _draw(
        stage,
        "timeline",
        [(r["posted_at"][:19], who.get(r["author"], ""), json.loads(r["content"])["text"]) for r in timeline],
    )
    stage.holds("Ada and Bob are the harbour's members", {who.get(r["identity"]) for r in members} == {"ada", "bob"})
    stage.holds("both public posts are in the timeline", len(timeline) == 2)
    refused = sum(row["refused"] or 0 for row in _rows(stage, "enclaves", "select=enclave,refused"))
    stage.holds("no event broke a rule of its enclave", not refused)
    _check_proof(stage)


def _settings(stage: Stage) -> None:
    from enc.dataview.views.catalog import readable

    lines = [
        'database = "serving.db"',
        f'listen = "127.0.0.1:{free_port()}"',
        f'registry = "{stage.known["registry"]}"',
        "origins = []",
    ]
    lines += ['identity = "ada/.local/share/enc/keys/default.key"']
    for view in (*readable(), "pipeline"):
        lines += ["", f"[views.{view}]", "public = true", "verify = true"]
    (stage.folder / "serve.toml").write_text("\n".join([*lines, ""]))


def _rows(stage: Stage, view: str, query: str) -> list[dict[str, Any]]:
    return _get(stage, f"/views/{view}?{query}")["rows"]


def _get(stage: Stage, path: str) -> Any:
    stage.show("operator", f"curl '{stage.known['page']}{path}'")
    return json.loads(fetch(stage.known["page"] + path))


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310
        return answer.read()


def _draw(stage: Stage, name: str, rows: list[tuple[str, ...]]) -> None:
    columns = {
        "members": ("enclave", "who", "state"),
        "activity": ("type", "events"),
        "timeline": ("time", "who", "post"),
    }
    table = Table(title=name, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns[name]:
        table.add_column(column, header_style="dim", justify="right" if column == "events" else "left")
    for row in rows:
        table.add_row(*row)
    stage.console.print(table)


def _check_proof(stage: Stage) -> None:
    answer = _get(stage, "/views/timeline?verify=1&limit=1&order=posted_at")
    (stage.folder / "row.json").write_text(json.dumps(answer["proofs"][0]["proof"]))
    stage.explain("The proof of the first row is saved to a file, and verified like any other:")
    says = stage.enc("cleo", "verify", "row.json", quiet=True)
    stage.holds("the proof of the row is valid", "The proof holds" in says)


def page(stage: Stage) -> None:
    """The page"""
    stage.explain(
        "The same server has a page: charts, enclaves, views, and an inspector that checks proofs in the browser."
    )
    shown = fetch(stage.known["page"] + "/")
    stage.holds(f"it is at {stage.known['page']}", b"<!doctype html" in shown.lower())


def live(stage: Stage) -> None:
    """Run the pipeline beside the page for --keep, so that new events appear there."""
    stage.stop("DataView")
    listen = stage.known["page"].removeprefix("http://")
    flags = (
        "--lake",
        str(stage.folder / "lake"),
        "--database",
        "serving.db",
        "--serve",
        "--config",
        "serve.toml",
        "--listen",
        listen,
    )
    stage.explain("From now on the pipeline runs beside the page and reads new events; Spark starts once more.")
    stage.start_mute("operator", "DataView", "dataview", "run", "--small", *stage.known["pulls"].split("\n"), *flags)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        stage.check_alive()
        try:
            fetch(stage.known["page"] + "/health")
        except OSError as e:
            if time.monotonic() > deadline:
                raise Failed(f"the page does not answer: {e}") from None
            time.sleep(0.2)
        else:
            return
