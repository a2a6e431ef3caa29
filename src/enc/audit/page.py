"""The report as a page that needs nothing but itself: no script, no picture, no font from anywhere."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

MAX_ROWS = 1000
WIDTH, BAR = 760, 18
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
td.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.85em;word-break:break-all}
svg text{fill:var(--ink);font-size:12px}svg .soft{fill:var(--soft)}svg .bar{fill:var(--bar)}
svg .bad{fill:var(--bad)}svg line{stroke:var(--line)}
.wide{overflow-x:auto}
"""


def page(report: Mapping[str, Any]) -> str:
    """The page of a report as `report.json` has it."""
    parts = [
        _verdict(report),
        _section("What was checked", _numbers(report["checked"])),
        _section("Findings by kind", bars({k.replace("_", " "): n for k, n in report["counts"].items()}, "bad")),
        _section("Time line", _timeline(report)),
        _section("Findings", _findings(report["findings"])),
        _section("Not completed", _problems(report["problems"])) if report["problems"] else "",
        _section("Notes", _problems(report["notes"])) if report["notes"] else "",
        _section("Largest enclaves", _largest(report["enclaves"])),
    ]
    policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    head = f'<meta charset="utf-8">{policy}<meta name="viewport" content="width=device-width"><title>Audit</title>'
    top = f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head>'
    return f"{top}<body>{''.join(parts)}</body></html>\n"


def _section(title: str, body: str) -> str:
    return f'<section><h2>{escape(title)}</h2><div class="wide">{body}</div></section>'


def _verdict(report: Mapping[str, Any]) -> str:
    count = sum(report["counts"].values())
    if count:
        words = f'<p class="verdict bad">{count} finding{"s" if count > 1 else ""}: a node did not keep its word.</p>'
    elif not report["complete"]:
        words = '<p class="verdict bad">No finding, but not everything could be looked at.</p>'
    else:
        words = '<p class="verdict good">No finding: every node kept its word.</p>'
    made = f"{_time(report['at'])} UTC, {report['took_s']:.1f} s, {report['runner']}"
    return f"<h1>Audit</h1>{words}<p>{escape(made)}</p>"


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


def bars(values: Mapping[str, int], style: str = "bar") -> str:
    """Horizontal bars, one a name."""
    most, height = max([*values.values(), 1]), BAR * len(values)
    drawn = []
    for i, (name, n) in enumerate(values.items()):
        y, width = i * BAR, (WIDTH - 290) * n / most
        drawn.append(f'<text x="0" y="{y + 13}">{escape(name)}</text>')
        drawn.append(f'<rect class="{style}" x="200" y="{y + 3}" width="{width:.1f}" height="{BAR - 6}"/>')
        drawn.append(f'<text class="soft" x="{206 + width:.1f}" y="{y + 13}">{n:,}</text>')
    return f'<svg role="img" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">{"".join(drawn)}</svg>'


def _timeline(report: Mapping[str, Any]) -> str:
    """Events by day, and above them the findings that have a time."""
    days = {int(day): n for day, n in report["days"].items()}
    marks = [f for f in report["findings"] if f["timestamp"]]
    span = [*days, *(f["timestamp"] // 86_400_000 for f in marks)]
    if not span:
        return "<p>No events.</p>"
    first, last = min(span), max(span)
    width, most = WIDTH / (last - first + 1), max([*days.values(), 1])
    drawn = [
        f'<rect class="bar" x="{(day - first) * width:.2f}" y="{140 - 100 * n / most:.1f}" '
        f'width="{max(width - 1, 0.5):.2f}" height="{100 * n / most:.1f}">'
        f"<title>{_day(day)}: {n:,} events</title></rect>"
        for day, n in days.items()
    ]
    for found in marks[:MAX_ROWS]:
        x = (found["timestamp"] / 86_400_000 - first) * width
        title = f"{_time(found['timestamp'])}: {found['kind']} at {found['seq']}"
        drawn.append(f'<circle class="bad" cx="{x:.2f}" cy="24" r="4"><title>{escape(title)}</title></circle>')
    ends = f'<text class="soft" x="0" y="158">{_day(first)}</text>'
    ends += f'<text class="soft" x="{WIDTH}" y="158" text-anchor="end">{_day(last)}</text>'
    line = f'<line x1="0" y1="140" x2="{WIDTH}" y2="140"/>'
    legend = '<text class="soft" x="0" y="12">findings (dots), events a day (bars)</text>'
    body = "".join([legend, *drawn, line, ends])
    return f'<svg role="img" viewBox="0 0 {WIDTH} 164" width="{WIDTH}" height="164">{body}</svg>'


def _day(day: int) -> str:
    return _time(day * 86_400_000)[:10]


def _findings(findings: Sequence[Mapping[str, Any]]) -> str:
    if not findings:
        return "<p>None.</p>"
    rows = "".join(
        f"<tr><td>{escape(f['kind'].replace('_', ' '))}</td><td><code>{f['enclave'][:16]}…</code></td>"
        f'<td class="n">{f["seq"]}</td><td>{escape(f["what"])}<br>{_evidence(f)}</td></tr>'
        for f in findings[:MAX_ROWS]
    )
    more = f"<p>and {len(findings) - MAX_ROWS} more in report.json</p>" if len(findings) > MAX_ROWS else ""
    return f"<table><tr><th>kind</th><th>enclave</th><th>seq</th><th>what</th></tr>{rows}</table>{more}"


def _evidence(found: Mapping[str, Any]) -> str:
    if found["evidence"] is None:
        return f"no evidence file: {escape(str(found['no_evidence']))}"
    return f'<a href="{escape(found["evidence"])}"><code>enc verify {escape(found["evidence"])}</code></a>'


def _problems(problems: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in problems[:MAX_ROWS])}</ul>"


def _largest(enclaves: Sequence[Mapping[str, Any]]) -> str:
    largest = sorted(enclaves, key=lambda each: -each["events"])[:20]
    return bars({f"{each['enclave'][:16]}…": each["events"] for each in largest}) if largest else "<p>None.</p>"
