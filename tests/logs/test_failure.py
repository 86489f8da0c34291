"""The failure in the log of a run that ran out of memory."""

from __future__ import annotations

import io
from collections import Counter

import pytest
import yaml
from failure_logs import CONFIG, STEP, T1, log_of
from hypothesis import given
from hypothesis import strategies as st
from oom_reports import load_reports, phase_told

from sphinx_verl_resources.logs.log import read_log as read_stream
from sphinx_verl_resources.memory.registries import EstimatorContext

GIB = 2**30


def read_log(blocks, name, **options):
    return read_stream(io.BytesIO(b"".join(blocks)), name, **options)


def failure(*lines):
    return read_log(["\n".join(lines).encode()], "run.log").failure


def sizes_of(result, *names):
    return [result.sizes[name] / GIB if name in result.sizes else None for name in names]


@pytest.fixture(scope="session")
def cases(root):
    return yaml.safe_load((root / "tests/logs/failures.yaml").read_text("utf-8"))


def test_each_kind_of_failure(cases):
    failures = {name: read_log([log_of(case)], name).failure for name, case in cases.items()}
    reading = {name: each and (each.phase, each.how, each.form) for name, each in failures.items()}
    assert reading == {name: case["told"] and tuple(case["told"]) for name, case in cases.items()}
    assert {name for name, case in cases.items() if case.get("step")} == {
        name for name, each in failures.items() if each and each.step == 2
    }


@pytest.mark.parametrize(
    ("name", "phase", "form", "line"),
    [
        ("interleaved", "update-backward", "cuda", 20),
        ("deduplicated", "ref-log-prob", "cuda", 8),
        ("driver_tells_more", "ref-log-prob", "cuda", 5),
        ("warm_up", "startup", "warm-up", 4),
        ("cascade", "critic-forward", "cuda", 7),
    ],
)
def test_how_workers_print(root, name, phase, form, line):
    content = (root / f"tests/logs/excerpts/{name}.log").read_bytes()
    result = failure(content.decode())
    assert (result.phase, result.form, result.place.line) == (phase, form, line)
    assert result.sizes.get("tried")
    bars = b"\r".join([b"Training Progress:   1%|", content])
    assert failure(bars.decode()).phase == phase


def test_a_failure_that_the_run_survives(cases):
    first, last = log_of(cases["old-log-prob"]).decode(), log_of(cases["vllm-rollout"]).decode()
    later = STEP.replace("step:2", "step:3")
    assert failure(first, later).phase == "old-log-prob"
    assert failure(first, later, last.removeprefix(CONFIG)).phase == "rollout"
    assert failure(first, last.removeprefix(CONFIG).replace(STEP, "")).phase == "old-log-prob"


def test_the_worker_alone_tells_the_log_probs_of_the_actor(root):
    content = (root / "tests/logs/excerpts/driver_tells_more.log").read_text("utf-8")
    assert failure(content.partition("Traceback")[0]).phase == "old-log-prob"


# -- logs that are cut off


def check_cut(case, content):
    """Check that a cut log gives the phase of the whole log, or possible phases that include it."""
    result = read_log([content], "run.log").failure
    right = case["told"][0] if case["told"] else "unknown"
    assert result is None or result.phase in {"unknown", right}
    assert not result or right == "unknown" or not result.phases or right in result.phases


@given(st.data())
def test_a_log_that_is_cut_anywhere_tells_nothing_wrong(cases, data):
    case = cases[data.draw(st.sampled_from(sorted(cases)))]
    content = log_of(case)
    begin = data.draw(st.integers(0, len(content)))
    check_cut(case, content[begin : data.draw(st.integers(begin, len(content)))])


# -- messages


def test_figures():
    result = failure(T1)
    assert (result.phase, result.how, result.form, result.place.line) == ("unknown", "", "cuda", 1)
    names = ("tried", "in_use", "others", "allocated", "reserved_unallocated", "free", "capacity")
    assert sizes_of(result, *names) == [2.5, 60, 17.5, 50, 8, 1.5, 79]


@pytest.mark.parametrize(
    ("clauses", "in_use", "others"),
    [
        ("Process 1 has 60.00 GiB memory in use.", 60, None),
        ("Process 1 has 60.00 GiB memory in use. Process 2 has 17.50 GiB memory in use.", 60, 17.5),
        ("Process 1 has 60.00 GiB memory in use. Process 2 has 61.00 GiB memory in use.", None, None),
    ],
)
def test_processes_that_pytorch_cannot_tell_apart(clauses, in_use, others):
    before, _, after = T1.partition("Including")
    result = failure(f"{before}{clauses} Of the{after.partition('Of the')[2]}")
    assert sizes_of(result, "in_use", "others") == [in_use, others]


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 79.00 GiB total capacity; 60.00 GiB already "
        "allocated; 256.00 MiB free; 70.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacty of 79.00 GiB "
        "of which 256.00 MiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 10.00 GiB is reserved by "
        "PyTorch but unallocated.",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.00 GiB of "
        "which 256.00 MiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, with 20.00 MiB allocated in "
        "private pools (e.g., CUDA Graphs), and 10.00 GiB is reserved by PyTorch but unallocated.",
    ],
    ids=["1.12", "2.1", "rocm"],
)
def test_messages_of_other_versions_of_pytorch(message):
    names = ("tried", "free", "capacity", "allocated", "reserved_unallocated")
    assert sizes_of(failure(message), *names) == [1 / 2, 1 / 4, 79, 60, 10]


@pytest.mark.parametrize("version", ["ray", "ray-2.56"])
def test_a_node_without_memory(cases, version):
    result = read_log([log_of(cases[version])], "run.log").failure
    assert sizes_of(result, "in_use", "capacity", "free") == [250, 251.5, 1.5]


def test_an_engine_at_its_start(cases):
    result = read_log([log_of(cases["vllm-sequence-too-long"])], "run.log").failure
    assert (result.sizes.get("tried"), result.sizes.get("free")) == (3.75 * GIB, round(2.11 * GIB))
    result = read_log([log_of(cases["vllm-not-enough-free"])], "run.log").failure
    assert (result.sizes.get("tried"), result.sizes.get("free"), result.sizes.get("capacity")) == tuple(
        round(each * GIB) for each in (47.47, 31.4, 79.11)
    )


# -- public reports


def test_reports():
    """Logs of reports with a known phase give that phase; no log gives a wrong one."""
    reports = load_reports()
    data = EstimatorContext()
    reading = {report["report"]: (report["phase"], phase_told(report, data)) for report in reports}
    counted = Counter(
        "right" if result == phase else "not told" if result == "unknown" else "wrong"
        for phase, result in reading.values()
    )
    assert counted == {"right": 29, "not told": 20, "wrong": 1}
    assert sum(result == phase != "unknown" for phase, result in reading.values()) == 17
    assert {name for name, (phase, result) in reading.items() if result not in {phase, "unknown"}} == {
        "verl-1964"
    }
    assert reading["verl-1964"] == (
        "checkpoint",
        "host",
    )  # host memory ran out at a time that the message does not give
