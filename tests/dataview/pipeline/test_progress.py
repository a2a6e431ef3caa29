"""Progress of a pipeline, from its own counts and Spark's reports. Without Spark."""

from enc.dataview.pipeline.progress import WINDOW_S, Meter, behind

ONE, TWO = "1" * 64, "2" * 64


def test_counts_and_rates() -> None:
    now = [100.0]
    meter = Meter(lambda: now[0])
    meter.start(events=50, derived=40, refused=3)
    first = meter.read([])
    assert (first.events, first.waiting, first.quarantined, first.rate, first.built) == (50, 10, 3, 0.0, 0)
    meter.ingested(200, 1)
    meter.derived(150)
    meter.built(2)
    now[0] += 2
    found = meter.read([])
    assert (found.events, found.waiting, found.quarantined, found.rate, found.built) == (250, 60, 4, 100.0, 2)
    meter.refused(9)
    meter.derived(1000)
    for _ in range(30):
        now[0] += 1
        found = meter.read([])
    assert (found.rate, found.quarantined, found.waiting) == (0.0, 9, 0)
    meter.ingested(50, 0)
    assert meter.read([]).rate == 50 / WINDOW_S


def test_what_nodes_have_told_of_and_has_not_come() -> None:
    source = {"latestOffset": f'{{"{ONE}": 7, "{TWO}": 4}}', "endOffset": f'{{"{ONE}": 5}}'}
    assert behind(source) == 6
    assert behind({**source, "latestOffset": None}) == 0
    assert behind({"latestOffset": '{"logOffset": 3}', "endOffset": '{"logOffset": 1}'}) == 0
    assert behind({"latestOffset": "no json", "endOffset": "7"}) == 0
    assert behind({"latestOffset": f'{{"{ONE}": 1}}', "endOffset": f'{{"{ONE}": 2}}'}) == 0
    assert Meter().read([source, source]).behind == 12
