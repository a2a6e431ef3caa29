"""The report as a self-contained HTML page: no script, and no image or font from elsewhere."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

MAX_ROWS = 1000
MAX_KEYS = 20
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--good:#1a7f37;--bad:#cf222e;--bar:#4f7cac}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);--paper:#fff}
@media(prefers-color-scheme:dark){
:root{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--good:#3fb950;--bad:#f85149;--bar:#6ea8dc}body{--paper:#0d1117}}
body{max-width:820px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
.verdict{font-size:1.2rem;font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}
table{border-collapse:collapse;width:100%;font-size:.9rem}
td,th{border-bottom:1px solid var(--line);padding:.3rem .5rem;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.85em}td.id{white-space:nowrap}
td.what,td.what code,li{overflow-wrap:anywhere}.soft{color:var(--soft)}a{color:var(--bar)}
.bars{display:grid;grid-template-columns:max-content 1fr;column-gap:.8rem;font-size:.85rem}
.bars div{padding-right:5.5rem;white-space:nowrap}
.bars.bad{color:var(--ink)}
.bars i{display:inline-block;height:.7em;margin-right:.4rem;background:var(--bar)}.bars.bad i{background:var(--bad)}
svg text{fill:var(--ink);font-size:12px}svg .soft{fill:var(--soft)}svg .bar{fill:var(--bar)}
svg .bad{fill:var(--bad)}svg line{stroke:var(--line)}
@media(max-width:600px){.findings tr:first-child{display:none}
.findings td{display:block;border:0;padding:0 .5rem;text-align:left}
.findings tr{display:block;padding:.4rem 0;border-bottom:1px solid var(--line)}
.findings td.n:before{content:"seq "}.findings td:first-child{font-weight:600}}
"""


def page(report: Mapping[str, Any]) -> str:
    """Return the page of a report in the form of `report.json`."""
    parts = [
        _verdict(report),
        _section("What was checked", _numbers(report["checked"])),
        _section("Findings by kind", bars({k.replace("_", " "): n for k, n in report["counts"].items()}, "bad")),
        _section("Time line", _timeline(report)),
        _section("Findings", _findings(report["findings"])),
        _section("Not completed", _problems(report["problems"])) if report["problems"] else "",
        _section("Notes", _problems(report["notes"])) if report["notes"] else "",
        _section("Withheld contents", _withheld(report["withheld"])) if report["withheld"] else "",
        _section("Largest enclaves", _largest(report["enclaves"])),
    ]
    policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    head = f'<meta charset="utf-8">{policy}<meta name="viewport" content="width=device-width"><title>Audit</title>'
    top = f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head>'
    return f"{top}<body>{''.join(parts)}</body></html>\n"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _verdict(report: Mapping[str, Any]) -> str:
    count = sum(report["counts"].values())
    seen = ". See the notes" if report["notes"] else ": every node followed the protocol"
    missed = "" if report["complete"] else "Not everything could be checked."
    if count:
        found = f"{count} finding{'s' if count > 1 else ''}. {missed}"
        words = f'<p class="verdict bad">{found}</p>{_convicted(report)}{_CONVICTION_NOTE}'
    elif missed:
        words = f'<p class="verdict bad">No finding. {missed}</p>'
    elif not report["checked"]["events"]:
        words = '<p class="verdict">No finding. There was no log to check.</p>'
    else:
        words = f'<p class="verdict good">No finding{seen}.</p>'
    made = f"{_time(report['at'])} UTC, {report['took_s']:.1f} s, {report['runner']}"
    return f"<h1>Audit</h1>{words}<p>{escape(made)}</p>"


_CONVICTION_NOTE = (
    "<p><code>enc verify</code> shows for each evidence file whether it convicts a node, and which. "
    "Some convict nobody: anyone who held a copy of a log may have altered it.</p>"
)


def _convicted(report: Mapping[str, Any]) -> str:
    """Name the keys that evidence convicts. It is for people to know whose keys they are."""
    keys = sorted({f["sequencer"] for f in report["findings"] if f["convicts"]})
    if not keys:
        return ""
    named = ", ".join(f"<code>{escape(key)}</code>" for key in keys[:MAX_KEYS])
    more = f", and of {len(keys) - MAX_KEYS} more keys" if len(keys) > MAX_KEYS else ""
    return f'<p class="what">Evidence convicts the holder of {named}{more}.</p>'


def _time(ms: int | None) -> str:
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms or 0)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return f"{ms} ms"


def _numbers(checked: Mapping[str, int]) -> str:
    rows = (
        f'<tr><th>{escape(name.replace("_", " "))}</th><td class="n">{n:,}</td></tr>' for name, n in checked.items()
    )
    return f"<table>{''.join(rows)}</table>"


def bars(values: Mapping[str, int], style: str = "") -> str:
    """Return horizontal bars, one for each name, as wide as the page."""
    most = max([*values.values(), 1])
    drawn = (
        f'<span>{escape(name)}</span><div><i style="width:{100 * n / most:.1f}%"></i>{n:,}</div>'
        for name, n in values.items()
    )
    return f'<div class="bars {style}">{"".join(drawn)}</div>'


def _timeline(report: Mapping[str, Any]) -> str:
    """Return a chart of events by day, with findings above. Positions are percentages of the
    width.
    """
    days = {int(day): n for day, n in report["days"].items()}
    marks = [f for f in report["findings"] if f["timestamp"]]
    span = [*days, *(f["timestamp"] // 86_400_000 for f in marks)]
    if not span:
        return "<p>No events.</p>"
    first, last = min(span), max(span)
    width, most = 100 / (last - first + 1), max([*days.values(), 1])
    drawn = [
        f'<rect class="bar" x="{(day - first) * width:.3f}%" y="{140 - 100 * n / most:.1f}" '
        f'width="{max(width * 0.92, 0.1):.3f}%" height="{100 * n / most:.1f}">'
        f"<title>{_day(day)}: {n:,} events</title></rect>"
        for day, n in days.items()
    ]
    for found in marks[:MAX_ROWS]:
        x = (found["timestamp"] / 86_400_000 - first) * width
        title = f"{_time(found['timestamp'])}: {found['kind']} at {_seq(found)}"
        drawn.append(f'<circle class="bad" cx="{x:.3f}%" cy="24" r="4"><title>{escape(title)}</title></circle>')
    ends = f'<text class="soft" x="0" y="158">{_day(first)}</text>'
    if last > first:
        ends += f'<text class="soft" x="100%" y="158" text-anchor="end">{_day(last)}</text>'
    line = '<line x1="0" y1="140" x2="100%" y2="140"/>'
    legend = f'<text class="soft" x="0" y="12">dots: findings; bars: events a day, at most {most:,}</text>'
    return f'<svg role="img" width="100%" height="164">{"".join([legend, *drawn, line, ends])}</svg>'


def _day(day: int) -> str:
    return _time(day * 86_400_000)[:10]


def _findings(findings: Sequence[Mapping[str, Any]]) -> str:
    if not findings:
        return "<p>None.</p>"
    rows = "".join(
        f"<tr><td>{escape(f['kind'].replace('_', ' '))}</td>"
        f'<td class="id"><code title="{f["enclave"]}">{f["enclave"][:16]}…</code></td><td class="n">{_seq(f)}</td>'
        f'<td class="what">{escape(f["what"])}<br>{_when(f)}{_evidence(f)}</td></tr>'
        for f in findings[:MAX_ROWS]
    )
    more = f"<p>and {len(findings) - MAX_ROWS} more in report.json</p>" if len(findings) > MAX_ROWS else ""
    names = "<tr><th>kind</th><th>enclave</th><th>seq</th><th>what</th></tr>"
    return f'<table class="findings">{names}{rows}</table>{more}'


def _seq(found: Mapping[str, Any]) -> str:
    return "?" if found["seq"] is None else str(found["seq"])


def _when(found: Mapping[str, Any]) -> str:
    return f'<span class="soft">{_time(found["timestamp"])} UTC</span><br>' if found["timestamp"] else ""


def _evidence(found: Mapping[str, Any]) -> str:
    if found["evidence"] is None:
        return f"no evidence file: {escape(str(found['no_evidence']))}"
    return f'<a href="{escape(found["evidence"])}"><code>enc verify {escape(found["evidence"])}</code></a>'


def _problems(problems: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in problems[:MAX_ROWS])}</ul>"


def _withheld(contents: Sequence[Mapping[str, Any]]) -> str:
    rows = "".join(
        f'<tr><td class="id"><code title="{c["enclave"]}">{c["enclave"][:16]}…</code></td><td class="n">{c["seq"]}</td>'
        f'<td class="id">{_time(c["ts"])} UTC</td><td>{escape(c["reason"])}</td>'
        f'<td class="what"><code>{c["node"]}</code></td></tr>'
        for c in contents[:MAX_ROWS]
    )
    more = f"<p>and {len(contents) - MAX_ROWS} more in report.json</p>" if len(contents) > MAX_ROWS else ""
    names = "<tr><th>enclave</th><th>seq</th><th>since</th><th>reason</th><th>node</th></tr>"
    return f"{_WITHHELD_NOTE}<table>{names}{rows}</table>{more}"


_WITHHELD_NOTE = (
    "<p>A node withholds each of these contents by its signed statement. The protocol allows this: "
    "it convicts nobody.</p>"
)


def _largest(enclaves: Sequence[Mapping[str, Any]]) -> str:
    largest = sorted(enclaves, key=lambda each: -each["events"])[:20]
    return bars({f"{each['enclave'][:16]}…": each["events"] for each in largest}) if largest else "<p>None.</p>"
