"""A live feed: one publishes, two listen. Ben's line is cut for a while; he misses nothing and hears nothing twice.

`subscribe` resumes by seq, an event's place in the log: on a new connection it asks for what came after the last one.
"""

import asyncio

from a_line import Line
from a_local_node import local_node

from enc import AsyncClient
from enc.client import AsyncEnclave

Heard = asyncio.Queue[str | None]
LAST = "Good night."


async def listen(name: str, feed: AsyncEnclave, heard: Heard) -> None:
    """What is stored, then what comes; each post is checked before it is seen."""
    async with feed.subscribe(type="post") as posts:
        async for post in posts:
            print(f"  {name} hears seq {post.seq}: {post.content}")
            heard.put_nowait(post.content)
            if post.content == LAST:
                break


async def broadcast(feed: AsyncEnclave, line: Line, anna: Heard, ben: Heard) -> None:
    print("One post, and both hear it:")
    await feed.commit("post", "Good morning.")
    await asyncio.gather(anna.get(), ben.get())

    print("Ben's line is cut; two more posts:")
    await line.cut()
    for text in ("Rain at noon.", "Sun at four."):
        await feed.commit("post", text)
        await anna.get()

    print("His line is mended, and there is one more post:")
    await line.mend()
    await feed.commit("post", LAST)
    assert [await ben.get() for _ in range(3)] == ["Rain at noon.", "Sun at four.", LAST]
    print("Both heard all four, in order, each once.")


async def main(url: str) -> None:
    async with Line(url) as line, AsyncClient(url, pins=None) as writer, AsyncClient(line.url, pins=None) as reader:
        feed = await writer.create("feed")
        print(f"A feed that its owner writes and everybody reads: {feed.hex[:16]}…")
        anna, ben = Heard(), Heard()
        await asyncio.gather(
            broadcast(feed, line, anna, ben), listen("Anna", feed, anna), listen("Ben", reader.enclave(feed.id), ben)
        )


with local_node() as url:
    asyncio.run(main(url))
