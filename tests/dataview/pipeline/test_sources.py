"""Checkpoints of sources. Without Spark."""

import os
from pathlib import Path

import pytest

from enc.core.errors import MisuseError
from enc.dataview.pipeline.sources import sources_by_checkpoint

NODE = {"format": "enc", "node": "http://n", "enclaves": "a"}
FILES = {"format": "enc_archive", "path": "x.enc"}


def name(source: dict[str, str]) -> str:
    [found] = sources_by_checkpoint([source])
    return found


def test_what_is_read_names_a_checkpoint_and_how_does_not() -> None:
    same = [
        {"enclaves": "a,b"},
        {"maxEventsPerTrigger": "5"},
        {"notices": "n", "timeout": "3", "patience": "4"},
        {"onUnreachable": "mark"},
    ]
    assert {name({**NODE, **more}) for more in same} == {name(NODE)}
    assert name({"format": "enc", "NODE": "http://n", "enclave": "c"}) == name(NODE), "case does not count"
    others = [{"node": "http://m"}, {"type": "post"}, {"startingSeq": "latest"}, {"keyFile": "k"}, {"identity": "i"}]
    assert len({name({**NODE, **more}) for more in others} | {name(NODE)}) == 6


def test_others_beside_it_change_nothing() -> None:
    assert sources_by_checkpoint([NODE, FILES]) == {name(NODE): NODE, name(FILES): FILES}


def test_a_path_is_the_same_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = name({**FILES, "path": f"{os.getcwd()}/x.enc,s3://b/y"})
    assert here == name({**FILES, "path": "x.enc,s3://b/y"})
    monkeypatch.chdir(tmp_path)
    assert here != name({**FILES, "path": "x.enc,s3://b/y"})


def test_none_and_one_twice() -> None:
    with pytest.raises(MisuseError, match="name at least one"):
        sources_by_checkpoint([])
    with pytest.raises(MisuseError, match="given twice"):
        sources_by_checkpoint([NODE, {**NODE, "enclaves": "b"}])
