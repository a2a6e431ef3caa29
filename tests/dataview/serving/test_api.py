"""The HTTP API on a real socket: rows in three formats, progress, ETags, and uniform errors."""

import csv
import io
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest

from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.rights import ViewRights
from tests.dataview.serving.asking import PUBLIC, refused, serving
from tests.dataview.serving.rows import ANNA, PAIRS, PEOPLE, A, B, pairs, person

ROW = {
    "name": "anna",
    "enclave": A,
    "age": 30,
    "score": 1.5,
    "is_well": True,
    "born": "1996-02-29",
    "seen": "2023-11-14T22:13:20.123456Z",
    "photo": "00ff",
    "extra": {"a": [1, 2]},
    "limit": 7,
}


@pytest.fixture
def http(place: str, database: ServingDatabase) -> Iterator[httpx.Client]:
    database.upsert(PEOPLE, [ANNA, person('bob, the "1st"\n')], {A: 5, B: 7})
    database.upsert(PAIRS, pairs(30), {A: 30})
    database.upsert(PAIRS.__class__("secret", PAIRS.columns, PAIRS.key), pairs(1), {})
    with serving(place, {"people": PUBLIC, "pairs": PUBLIC, "missing": PUBLIC}) as client:
        yield client


def test_json(http: httpx.Client) -> None:
    answer = http.get("/views/people", params={"name": "anna"})
    assert answer.json() == {
        "view": "people",
        "rows": [ROW],
        "next": None,
        "complete": {A: 5, B: 7},
        "all_enclaves": True,
    }
    assert answer.headers["enc-complete"] == f"{A}=5, {B}=7"


def test_csv(http: httpx.Client) -> None:
    answer = http.get("/views/people", headers={"accept": "text/html, text/csv;q=0.9"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert rows[0] == {**{name: str(value) for name, value in ROW.items()}, "is_well": "true", "extra": '{"a":[1,2]}'}
    assert rows[1]["name"] == 'bob, the "1st"\n'
    assert rows[1]["age"] == ""
    assert answer.headers["enc-complete"] == f"{A}=5, {B}=7"


def test_arrow(http: httpx.Client) -> None:
    answer = http.get("/views/people?format=arrow&limit=1")
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.schema.field("seen").type == pa.timestamp("us", tz="UTC")
    row = table.to_pylist()[0]
    assert (row["name"], row["photo"], row["born"].isoformat()) == ("anna", b"\x00\xff", "1996-02-29")
    says = table.schema.metadata
    assert json.loads(says[b"enc.complete"]) == {A: 5, B: 7}
    assert says[b"enc.next"]


def test_numbers_that_json_has_not_are_null(place: str, database: ServingDatabase) -> None:
    database.upsert(PEOPLE, [person("x", score=float("inf")), person("y", score=float("nan"))], {})
    with serving(place, {"people": PUBLIC}) as http:
        rows = http.get("/views/people").json()["rows"]
    assert [row["score"] for row in rows] == [None, None]


def test_pages_follow_each_other(http: httpx.Client) -> None:
    url, found = "/views/pairs?limit=7&order=-c&c.null=0", []
    while url:
        answer = http.get(url)
        found += answer.json()["rows"]
        url = answer.links["next"]["url"] if "next" in answer.links else ""
    assert sorted(found, key=lambda row: (row["a"], row["b"])) == [row for row in pairs(30) if row["c"] is not None]
    assert len(found) > 14


def test_a_page_of_large_contents_ends_early_and_goes_on(
    place: str, database: ServingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enc.dataview.serving.handlers.MAX_PAGE", 1000)
    sizes = [10, 2000, 400, 400, 400, 10]
    database.upsert(PEOPLE, (person(f"p{n}", enclave=None, born="x" * size) for n, size in enumerate(sizes)), {})
    found, url = list[list[int]](), "/views/people?select=born"
    with serving(place, {"people": PUBLIC}) as http:
        while url:
            answer = http.get(url)
            found.append([len(row["born"]) for row in answer.json()["rows"]])
            url = answer.links["next"]["url"] if "next" in answer.links else ""
    assert found == [[10], [2000], [400, 400], [400, 10]]


def test_progress_is_that_of_the_enclaves_that_are_asked_for(http: httpx.Client) -> None:
    assert http.get("/views/people", params={"enclave": B}).json()["complete"] == {B: 7}
    assert http.get("/views/people", params={"enclave.in": f"{A},x\x00"}).json()["complete"] == {A: 5}
    assert http.get("/views/people/progress?limit=1").json() == {"view": "people", "complete": {A: 5}, "next": A}
    assert http.get(f"/views/people/progress?after={A}").json() == {"view": "people", "complete": {B: 7}, "next": None}
    named = http.get("/views/people/progress", params={"enclave.in": f"{B},x\x00"}).json()
    assert named == {"view": "people", "complete": {B: 7}, "next": None}


def test_progress_of_very_many_enclaves_is_told_in_parts(place: str, database: ServingDatabase) -> None:
    enclaves = {f"{n:064x}": n for n in range(1001)}
    database.upsert(PEOPLE, [ANNA], enclaves)
    with serving(place, {"people": PUBLIC}) as http:
        answer = http.get("/views/people")
        assert (len(answer.json()["complete"]), answer.json()["all_enclaves"]) == (1000, False)
        assert answer.headers["enc-complete"] == "/views/people/progress"
        first = http.get("/views/people/progress").json()
        rest = http.get("/views/people/progress", params={"after": first["next"]}).json()
    assert first["complete"] | rest["complete"] == enclaves


def test_an_etag_holds_until_the_view_changes(http: httpx.Client, database: ServingDatabase) -> None:
    first = http.get("/views/people?name=anna")
    known = {"if-none-match": f'"x", W/{first.headers["etag"]}'}
    again = http.get("/views/people?name=anna", headers=known)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    for other in ("?name=bob", "?name=anna&limit=5", "?name=anna&select=age", "?name=anna&format=csv"):
        assert http.get(f"/views/people{other}", headers=known).status_code == 200
    database.upsert(PAIRS, [], {A: 31})
    assert http.get("/views/people?name=anna", headers=known).status_code == 304
    database.upsert(PEOPLE, [], {A: 6})
    changed = http.get("/views/people?name=anna", headers=known)
    assert (changed.status_code, changed.json()["complete"][A]) == (200, 6)


def test_an_etag_holds_no_longer_when_a_view_is_complete_further_and_has_the_same_rows(
    http: httpx.Client, database: ServingDatabase
) -> None:
    known = {"if-none-match": http.get("/views/people").headers["etag"]}
    assert http.get("/views/people", headers=known).status_code == 304
    database.advance_progress("people", {A: 6})
    answer = http.get("/views/people", headers=known)
    assert (answer.status_code, answer.json()["complete"][A]) == (200, 6)


def test_a_view_anew_has_another_etag(http: httpx.Client, database: ServingDatabase) -> None:
    tags = set()
    for _ in range(3):
        database.replace(PEOPLE, [ANNA], {})
        tags.add(http.get("/views/people").headers["etag"])
    assert len(tags) == 3


def test_a_new_column_shows_without_a_restart(http: httpx.Client, database: ServingDatabase) -> None:
    from enc.dataview.serving.columns import Column

    assert "d" not in http.get("/views/pairs?limit=1").json()["rows"][0]
    more = PAIRS.__class__("pairs", (*PAIRS.columns, Column("d", "string")), PAIRS.key)
    database.upsert(more, [{"a": 0, "b": "b0", "c": 1, "d": "new"}], {})
    assert http.get("/views/pairs?d=new").json()["rows"] == [{"a": 0, "b": "b0", "c": 1, "d": "new"}]


def test_the_list_of_views_is_of_those_that_may_be_read(http: httpx.Client) -> None:
    views = http.get("/views").json()["views"]
    assert [view["name"] for view in views] == ["pairs", "people"]
    assert views[1]["key"] == ["name"]
    assert views[1]["description"] == "People by name."
    assert {"name": "seen", "type": "timestamp"} in views[1]["columns"]
    assert "secret" not in http.get("/openapi.json").text


def test_openapi_names_every_path_and_every_filter(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    names = [each["name"] for each in document["paths"]["/views/people"]["get"]["parameters"]]
    assert len(set(names)) == len(names)
    for name in ("order", "limit", "name", "age.ge", "extra.contains", "limit.eq"):
        assert name in names
    assert "verify" not in [each["name"] for each in document["paths"]["/views/pairs"]["get"]["parameters"]]
    for path in document["paths"]:
        assert http.get(path).status_code == 200, path


@pytest.mark.parametrize("path", ["/views/secret", "/views/nothing", "/views/secret/progress"])
def test_what_is_not_theirs_and_what_is_not_there_are_the_same(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert refused(answer, 401, "UNAUTHENTICATED").startswith("no public view of this name")
    assert answer.headers["www-authenticate"] == "Bearer, ENC-Session"


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/views/people?nobody=1", 400, "INVALID_FILTER"),
        ("/views/people?age=1%20OR%201=1", 400, "INVALID_FILTER"),
        ("/views/people?name%22;DROP%20TABLE%20view_people;--=1", 400, "INVALID_FILTER"),
        ("/views/people?order=(select+1)", 400, "INVALID_QUERY"),
        ("/views/people?limit=1000000000", 400, "INVALID_QUERY"),
        ("/views/people?cursor=%00", 400, "INVALID_QUERY"),
        ("/views/people?format=xml", 400, "INVALID_QUERY"),
        ("/views/people?verify=yes", 400, "INVALID_QUERY"),
        ("/views/people?name=%ff", 400, "INVALID_QUERY"),
        ("/views/people?" + "&".join(f"c{n}=1" for n in range(65)), 400, "INVALID_QUERY"),
        ("/views/people?name=" + "x" * 33_000, 400, "INVALID_QUERY"),
        ("/views/people/progress?limit=0", 400, "INVALID_QUERY"),
        ("/views/people/progress?limit=1&limit=2", 400, "INVALID_QUERY"),
        ("/views?x=1", 400, "INVALID_QUERY"),
        ("/views/", 404, "INVALID_QUERY"),
        ("/views/people/", 404, "INVALID_QUERY"),
        ("/?x=1", 400, "INVALID_QUERY"),
        ("/page/nothing.js", 404, "INVALID_QUERY"),
        ("/views/people/progress?enclave.in=" + ",".join(["x"] * 257), 400, "INVALID_QUERY"),
        ("/views/pe%6fple%00", 401, "UNAUTHENTICATED"),
        ("/views/x';DROP TABLE enc_views;--", 401, "UNAUTHENTICATED"),
    ],
)
def test_bad_requests(http: httpx.Client, target: str, status: int, code: str) -> None:
    refused(http.get(target), status, code)
    assert http.get("/views/people?limit=1").json()["rows"] == [ROW]


def test_raw_bytes_in_a_url_are_refused(http: httpx.Client) -> None:
    where = urlsplit(str(http.base_url))
    with socket.create_connection((where.hostname or "", where.port or 0)) as line:
        line.sendall(b"GET /views/people?name=\xff HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_there_is_nothing_to_write(http: httpx.Client, method: str) -> None:
    answer = http.request(method, "/views/people")
    refused(answer, 405, "INVALID_QUERY")
    assert answer.headers["allow"] == "GET, HEAD"


def test_head_says_what_get_would(http: httpx.Client) -> None:
    head, get = http.head("/views/people"), http.get("/views/people")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == get.headers["etag"]


def test_browsers_may_ask(http: httpx.Client) -> None:
    assert http.get("/views", headers={"origin": "http://localhost:3000"}).headers["access-control-allow-origin"] == "*"
    asked = {"origin": "http://localhost:3000", "access-control-request-method": "GET"}
    asked["access-control-request-headers"] = "authorization"
    assert http.options("/views/people", headers=asked).status_code == 200


@pytest.mark.parametrize("origins", [(), ("https://b.test",)])
def test_pages_of_others_may_not_where_it_is_said(
    place: str, database: ServingDatabase, origins: tuple[str, ...]
) -> None:
    with serving(place, {"people": ViewRights(public=True)}, origins=origins) as http:
        answer = http.get("/views", headers={"origin": "https://a.test"})
        assert "access-control-allow-origin" not in answer.headers
        asked = {"origin": "https://a.test", "access-control-request-method": "GET"}
        assert http.options("/views", headers=asked).status_code == 403
        known = http.get("/views", headers={"origin": "https://b.test"}).headers.get("access-control-allow-origin")
        assert known == (origins[0] if origins else None)


def test_info_and_health(http: httpx.Client) -> None:
    assert http.get("/info").json()["session_pub"] is None
    assert http.get("/health").json() == {"status": "ok"}


def test_a_query_that_takes_too_long(place: str, database: ServingDatabase) -> None:
    database.upsert(PAIRS, ({"a": n, "b": "x", "c": n} for n in range(60_000)), {})
    with serving(place, {"pairs": ViewRights(public=True)}, query_timeout_s=0.0011) as http:
        assert "index" in refused(http.get("/views/pairs?b.contains=y&order=-c"), 422, "QUERY_TOO_SLOW")
