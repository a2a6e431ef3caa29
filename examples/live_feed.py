"""A live feed with two subscribers. Ben's connection fails for a while; he misses nothing and gets nothing twice.

`subscribe` resumes by seq, an event's place in the log: after a reconnect it asks for the events after the last one.
"""

import asyncio

from local_node import local_node
from relay import Relay

from enc import AsyncClient
from enc.client import AsyncEnclave

Heard = asyncio.Queue[str | None]
LAST = "Good night."


async def listen(name: str, feed: AsyncEnclave, heard: Heard) -> None:
    """Print the stored posts, then new ones; each is verified first."""
    async with feed.subscribe(type="post") as posts:
        async for post in posts:
            print(f"  {name} receives seq {post.seq}: {post.content}")
            heard.put_nowait(post.content)
            if post.content == LAST:
                break


async def broadcast(feed: AsyncEnclave, line: Relay, anna: Heard, ben: Heard) -> None:
    print("One post, and both receive it:")
    await feed.commit("post", "Good morning.")
    await asyncio.gather(anna.get(), ben.get())

    print("Ben's connection is cut; two more posts:")
    await line.cut()
    for text in ("Rain at noon.", "Sun at four."):
        await feed.commit("post", text)
        await anna.get()

    print("His connection is restored; one more post:")
    await line.restore()
    await feed.commit("post", LAST)
    assert [await ben.get() for _ in range(3)] == ["Rain at noon.", "Sun at four.", LAST]
    print("Both received all four, in order, each once.")


async def main(url: str) -> None:
    async with Relay(url) as line, AsyncClient(url, pins=None) as writer, AsyncClient(line.url, pins=None) as reader:
        feed = await writer.create("feed")
        print(f"A feed that its owner writes and everybody reads: {feed.hex[:16]}…")
        anna, ben = Heard(), Heard()
        await asyncio.gather(
            broadcast(feed, line, anna, ben), listen("Anna", feed, anna), listen("Ben", reader.enclave(feed.id), ben)
        )


with local_node() as url:
    asyncio.run(main(url))
