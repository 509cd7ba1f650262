"""The child process around the readers: hostile files end in a sentence, within time and memory."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gpuagent.traces import sandbox
from gpuagent.traces.analyse import analyse_file
from gpuagent.traces.errors import TraceError
from gpuagent.traces.limits import MIB
from gpuagent.traces.sandbox import SandboxLimits, analyse_upload
from tests.gpuagent.traces import make

# What an upload may take at most, whatever it holds.
CPU_S = 10
MEMORY_BYTES = 200 * MIB


def gzip_bomb(path: Path) -> None:
    """10 GiB of blanks inside a trace, in about 10 MB."""
    member = gzip.compress(b" " * (64 * MIB), 9)
    with path.open("wb") as out:
        out.write(gzip.compress(b'{"traceEvents": ['))
        for _ in range(160):
            out.write(member)


def deep_json(path: Path) -> None:
    path.write_text('{"traceEvents": [' + '{"args":' * 1_000_000)


def deep_list(path: Path) -> None:
    path.write_text("[" * 1_000_000)


def huge_string(path: Path) -> None:
    path.write_text('{"traceEvents": [{"ph": "X", "name": "' + "x" * (64 * MIB) + '"}]}')


def huge_number(path: Path) -> None:
    path.write_text('{"traceEvents": [{"ph": "X", "ts": ' + "9" * (4 * MIB) + "}]}")


def endless_view(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        base.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start FROM n"
        )


def no_trace(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + bytes(range(256)) * 1000)


HOSTILE = {
    "bomb.json.gz": gzip_bomb,
    "deep.json": deep_json,
    "list.json": deep_list,
    "string.json": huge_string,
    "number.json": huge_number,
    "view.sqlite": endless_view,
    "program.json": no_trace,
}


# A process of its own, because the peak of children is kept per parent.
OUTER = """
import json, resource, sys
from pathlib import Path
from gpuagent.traces.errors import TraceError
from gpuagent.traces.sandbox import SandboxLimits, analyse_upload, scrub_upload
path, out, seconds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
said = []
for task in (lambda l: analyse_upload(path, l), lambda l: scrub_upload(path, out, l)):
    try:
        task(SandboxLimits(cpu_s=seconds))
        said.append(None)
    except TraceError as error:
        said.append((error.code, error.message))
print(json.dumps([said, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024]))
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    HOSTILE[name](path)
    command = [sys.executable, "-c", OUTER, str(path), str(tmp_path / "out"), str(CPU_S)]
    answer = subprocess.run(command, capture_output=True, check=True, text=True)
    said, peak_bytes = json.loads(answer.stdout)
    for refusal in said:
        assert refusal is not None
        code, message = refusal
        assert code != "too_slow", message
        assert "within its limits" not in message, "the wall was needed, not the reader's limit"
        assert message.endswith(".")
        assert "Traceback" not in message
    assert peak_bytes < MEMORY_BYTES, peak_bytes / MIB
    assert not (tmp_path / "out").exists()


def test_a_file_that_needs_more_memory_than_allowed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("w") as out:
        out.write('{"traceEvents": [\n')
        event = '{"ph":"X","cat":"kernel","name":"k%d","ts":%d,"dur":1,"args":{"device":0}}'
        out.write(",\n".join(event % (index, 2 * index) for index in range(200_000)))
        out.write("\n]}")
    with pytest.raises(TraceError) as caught:
        analyse_upload(path, SandboxLimits(address_bytes=4 * MIB))
    assert caught.value.code in ("too_large", "refused")


def test_a_child_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(TraceError) as caught:
        analyse_upload(path, SandboxLimits(wall_s=0.01))
    assert caught.value.code == "too_slow"
    assert "shorter window" in caught.value.message


def test_the_child_sees_nothing_of_the_parents_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ADVISOR_SECRET_KEY", "hunter2")
    assert "hunter2" not in str(sandbox._environment())


def test_the_childs_answer_is_the_readers_report(tmp_path: Path) -> None:
    path = make.launch_bound().write(tmp_path / "a.json")
    assert analyse_upload(path)["verdict"] == analyse_file(path).as_dict()["verdict"]
