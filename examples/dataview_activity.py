# %% [markdown]
# # Who writes when: from the events of three feeds to a picture
#
# A node with three feeds; the pipeline, which verifies every event and writes tables; a custom view in SQL; the same
# view over HTTP; a chart; and a row with its proof. Run it cell by cell in an editor that supports `# %%`, or as a
# whole: `python examples/dataview_activity.py`. It needs Java 17 and the packages of `make setup`.

# %% The tools
import contextlib
import tempfile
from pathlib import Path

import httpx
from local_node import local_node

from enc.client import Client, Identity, check_proof, load_proof
from enc.core.primitives.encoding import compact_json
from enc.dataview.lake.session import spark_session
from enc.dataview.pipeline.job import Job, JobSettings
from enc.dataview.serving.config import ServingConfig
from enc.dataview.serving.rights import ViewRights
from enc.dataview.serving.server import ServingServer

ending = contextlib.ExitStack()
folder = Path(ending.enter_context(tempfile.TemporaryDirectory()))

# %% [markdown]
# ## A node, and three feeds that are written to at different times

# %%
url = ending.enter_context(local_node())
client = ending.enter_context(Client(url, Identity.new(), pins=None))
me = [{"identity": client.identity.hex, "state": "OWNER", "traits": []}]
FEED = {
    "enc_v": 2,
    "states": ["OWNER"],
    "readers": [{"type": "Public", "reads": "*"}],
    "customs": [{"event": "public", "operator": "OWNER", "ops": ["C", "U", "D"]}],
    "bundle": {"size": 8, "timeout": 1000},
    "init": me,
}
feeds = {name: client.create({**FEED, "meta": {"description": name}}) for name in ("birds", "bread", "boats")}
for n in range(60):
    for name, is_awake in (("birds", n < 30), ("bread", n % 10 < 3), ("boats", n > 20)):
        if is_awake:
            last = feeds[name].commit("public", f"{name}, part {n}")
print(f"Written; the last event has seq {last.seq} in its feed.")

# %% [markdown]
# ## A custom view: a file of SQL with a short header

# %%
(folder / "views").mkdir()
(folder / "views" / "pace.sql").write_text("""\
-- description: Posts in each tenth of a second, by feed.
-- key: enclave, tenth
-- test: not_null(posts)
SELECT enclave, floor(unix_millis(posted_at) / 100) AS tenth, count(*) AS posts
FROM timeline GROUP BY 1, 2
""")

# %% [markdown]
# ## The pipeline: read the events, verify them, build the tables, publish them

# %%
source = {"format": "enc", "node": url, "enclaves": ",".join(feed.hex for feed in feeds.values())}
place = str(folder / "serving.db")
settings = JobSettings(root=str(folder / "lake"), sources=(source,), database=place, views=str(folder / "views"))
spark = spark_session("activity", "local[2]")
ending.callback(spark.stop)
job = Job(settings, spark)
job.drain()
job.close()

# %% [markdown]
# ## The tables are Delta tables like any others

# %%
job.lake["events"].read(spark).createOrReplaceTempView("events")
spark.sql("SELECT type, count(*) AS events, count(DISTINCT enclave) AS enclaves FROM events GROUP BY type").show()

# %% [markdown]
# ## The same view over HTTP, for people and programs

# %%
rights = {"pace": ViewRights(public=True), "timeline": ViewRights(public=True, verify=True)}
server = ServingServer(ServingConfig(database=place, listen="127.0.0.1:0", node=url, views=rights))
http = httpx.Client(base_url=ending.enter_context(server.running()), trust_env=False)
answer = http.get("/views/pace?order=tenth&limit=1000").json()
names = {feed.hex: name for name, feed in feeds.items()}
print("Complete up to:", {name: answer["complete"][feed.hex] for name, feed in feeds.items()})

# %% [markdown]
# ## A chart, written by hand: SVG is text

# %%
tenths = [row["tenth"] for row in answer["rows"]]
first, width, most = min(tenths), max(tenths) - min(tenths) + 1, max(row["posts"] for row in answer["rows"])
lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width * 10 + 80} {len(names) * 60}" font-size="12">']
for i, (enclave, name) in enumerate(names.items()):
    lines.append(f'<text x="4" y="{i * 60 + 45}">{name}</text>')
    for row in answer["rows"]:
        if row["enclave"] == enclave:
            x, high = 70 + (row["tenth"] - first) * 10, 50 * row["posts"] / most
            lines.append(f'<rect x="{x}" y="{i * 60 + 55 - high:.1f}" width="8" height="{high:.1f}" fill="steelblue"/>')
picture = Path("activity.svg")
picture.write_text("\n".join([*lines, "</svg>\n"]))
print(f"Drawn: {picture}, {sum(row['posts'] for row in answer['rows'])} posts")

# %% [markdown]
# ## A row with its proof, verified here without trusting the pipeline, its database or its server

# %%
checked = http.get("/views/timeline?verify=1&limit=1&order=posted_at").json()
proof = load_proof(compact_json(checked["proofs"][0]["proof"]).encode())
print(f"{checked['rows'][0]['content']!r}:", *check_proof(proof).proved, sep="\n  ")

# %%
http.close()
ending.close()
