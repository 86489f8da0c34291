"""Reading verl's console log, with any other text in it."""

from __future__ import annotations

import io
import pprint
import re
import tracemalloc
from collections.abc import Sized

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.logs.facts import Line, facts_in
from sphinx_verl_resources.logs.log import _ATOM, _TOKEN, config_at, read_log

WHO = "(TaskRunner pid=7) "
CONFIG = {
    "actor_rollout_ref": {
        "actor": {"optim": {"betas": [0.9, 0.999], "lr": 1e-6}, "strategy": "fsdp", "tau": -1},
        "model": {"path": 'it\'s "quoted" {and} bracketed', "external_lib": None},
    },
    "data": {"shuffle": True, "train_batch_size": 256, "empty": {}, "files": []},
    "trainer": {"nnodes": 2},
}
FLAT = {
    "actor_rollout_ref.actor.optim.betas": (0.9, 0.999),
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.strategy": "fsdp",
    "actor_rollout_ref.actor.tau": -1,
    "actor_rollout_ref.model.path": 'it\'s "quoted" {and} bracketed',
    "actor_rollout_ref.model.external_lib": None,
    "data.shuffle": True,
    "data.train_batch_size": 256,
    "data.files": (),
    "trainer.nnodes": 2,
}


def header(config=CONFIG, who=WHO):
    return [who + line for line in pprint.pformat(config).splitlines()]


def step(number, who=WHO, **figures):
    names = {"gib": "perf/max_memory_allocated_gb", "time": "timing_s/step", "mfu": "perf/mfu/actor"}
    return f"{who}step:{number} - " + " - ".join(f"{names[name]}:{value}" for name, value in figures.items())


def read(*lines, end="\n", **options):
    return read_log(io.BytesIO(("\n".join(lines) + end).encode()), "run.log", **options)


def places(log):
    return [f"{problem.place} {problem.code}" for problem in log.problems]


def test_configuration():
    log = read("hello", *header(), step(1, gib=71.3))
    assert log.settings == FLAT
    assert log.problems == ()


def test_configuration_of_the_program_itself_and_on_one_line():
    assert read(*header(who="")).settings == FLAT
    assert read(f"INFO config: {CONFIG!r} and more").settings == FLAT


def test_interleaved_configuration():
    lines = header()
    noise = ["(WorkerDict pid=9) {'data': {'x':", f"{WHO}WARNING something of the same worker", "nobody"]
    mixed = [line for pair in zip(lines, noise * len(lines), strict=False) for line in pair]
    assert read(*mixed, step(1, gib=1)).settings == FLAT


def test_colours_and_progress_bars():
    coloured = [f"\x1b[36m(TaskRunner pid=7)\x1b[0m {line[len(WHO) :]}" for line in header()]
    bar = f"\x1b[2KTraining:   1%|█ | 1/99\rTraining:   2%|█ | 2/99\r{step(1, gib=5.5)}"
    log = read(*coloured, bar)
    assert log.settings == FLAT
    assert max(log.figures.values("perf/max_memory_allocated_gb")) == 5.5


@pytest.mark.parametrize("lines", range(1, len(header())))
def test_nothing_is_read_of_a_configuration_that_is_cut_off(lines):
    log = read(*header()[:lines])
    assert (log.settings, places(log)) == ({}, ["run.log:1:1 unread"])


def test_values_that_are_no_literals():
    log = read(
        WHO
        + "{'data': {'a': inf, 'b': <Enum.x: 1>, 'c': PosixPath('/x'), 'd': np.float64(0.5), 'e': 'True'}}"
    )
    assert log.settings == {"data.d": 0.5, "data.e": "True"}
    assert [problem.message.split()[-1] for problem in log.problems] == ["data.a", "data.b", "data.c"]


OOM = "(WorkerDict pid=9) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
ASLEEP = "(WorkerDict pid=9) Sleep mode freed 41.20 GiB memory, {} GiB memory is still in use."
NODE = "Memory on the node (IP: 1.2.3.4) was 9.00GB / 500.00GB"


@pytest.mark.parametrize(
    "line", [OOM, f"{OOM} Process 1 has 9.00 GiB memory in use", NODE, ASLEEP.format("9.00")]
)
def test_a_size_without_end_is_no_size(line):
    log = read(re.sub(r"\d(?=\.\d\d ?G)", "9" * 400, line))
    assert not log.sleep
    assert not (log.failure and log.failure.sizes)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(_TOKEN, "'\\" * 50), (_TOKEN, '"' + '\\"' * 50), (_ATOM, "'\\" * 50), (_ATOM, "<a:" * 50)],
)
def test_nothing_that_stays_open_is_read_twice(pattern, text):
    assert [match.span() for match in pattern.finditer(text)] == [(0, len(text))]
    assert not isinstance(config_at(Line("{'data': {")), Sized)  # or each line would count the ones before


@pytest.mark.parametrize("value", ["9" * 5_000, f"{'-' * 5_000}1", "<Enum.x: 1>", "[inf]"])
def test_an_odd_value_is_left_out(value):
    log = read(f"{WHO}{{'data': {{'a': {value}, 'b': 8}}}}")
    assert "data.a" not in log.settings
    assert len(log.problems) == 1


def test_figures():
    log = read(
        step(1, gib=70, time=10.0, mfu=0.1),
        step(2, gib="np.float64(71.5)", time=20.0, mfu="tensor(0.3, device='cuda:0')"),
        WHO + "step:3 - actor/perf/max_memory_allocated_gb:60.0 - critic/perf/max_memory_reserved_gb:75.0",
    )
    figures = log.figures
    assert figures.last_step == 3
    assert figures.values("perf/max_memory_allocated_gb") == [70, 71.5, 60]
    assert figures.values("perf/max_memory_reserved_gb") == [75]
    assert figures.values("perf/time_per_step") == []
    assert figures.values("timing_s/step") == [10, 20]
    assert figures.values("perf/mfu/actor") == [0.1, 0.3]
    assert log.problems == ()


@pytest.mark.parametrize(
    "line",
    [
        step(1, gib="nan", time=1),
        step(1, gib="-5", time=1),
        step(1, gib="1e400", time=1),
        step(1, gib="9" * 400, time=1),
        step("9" * 5_000, gib=1),
        "  {'perf/max_memory_allocated_gb': 71.3}",
        f"{WHO}step:1 - perf/max_memory_allocated_gb(WorkerDict pid=9) oops - timing_s/step:1",
    ],
)
def test_what_cannot_be_read_is_listed(line):
    log = read("first", line)
    assert places(log) == ["run.log:2:1 unread"]
    assert log.problems[0].message.startswith("perf/max_memory_allocated_gb")
    assert log.figures.values("perf/max_memory_allocated_gb") == []


def test_a_line_that_breaks_off_gives_no_half_figure():
    log = read(step(1, time=9, gib=71.3)[:-2], end="")
    assert max(log.figures.values("timing_s/step")) == 9
    assert log.figures.values("perf/max_memory_allocated_gb") == []
    assert places(log) == ["run.log:1:1 unread"]


def test_a_run_that_only_started_does_not_count():
    other = {**CONFIG, "trainer": {"nnodes": 4}}
    again = "(TaskRunner pid=8) "
    log = read(
        *header(), step(1, gib=50), step(2, gib=51),
        *header(other, again), step(1, again, gib=30), step(2, again, gib=31),
        *header(CONFIG, "(TaskRunner pid=9) "),
    )  # fmt: skip
    assert log.settings["trainer.nnodes"] == 4
    assert max(log.figures.values("perf/max_memory_allocated_gb")) == 31
    assert ["3 runs; number 2" in problem.message for problem in log.problems] == [True]


def test_failures_belong_to_runs():
    lines = len(header())
    assert str(read(*header(), step(1, gib=1), OOM).failure.place) == f"run.log:{lines + 2}:1"
    assert str(read(*header(), OOM).failure.place) == f"run.log:{lines + 1}:1"
    assert read(*header(), OOM, *header(), step(1, gib=1)).failure is None
    last = read(*header(), step(1, gib=1), *header({"trainer": {"nnodes": 4}}), OOM)
    assert (last.failure.step, last.settings) == (None, {"trainer.nnodes": 4})
    assert [problem.code for problem in last.problems] == ["several_runs"]
    assert not read("lower gpu_memory_utilization to avoid running out of memory").failure


HYDRA = "Error executing job with overrides: ['data.train_batch_size=16', '+data.shuffle=False']"


def test_overrides_where_no_configuration_is_printed():
    assert read(OOM, HYDRA).settings == {"data.train_batch_size": 16, "data.shuffle": False}
    assert read(*header()[:-1], OOM, HYDRA).settings == {"data.train_batch_size": 16, "data.shuffle": False}
    assert read(*header(), OOM, HYDRA).settings == FLAT
    assert read("Error executing job with overrides: []", HYDRA[:-1]).settings == {}


def test_a_configuration_behind_a_failure_begins_another_run():
    again = read(*header(), OOM, *header({"trainer": {"nnodes": 4}}), OOM)
    assert (again.settings, again.failure.place.line) == ({"trainer.nnodes": 4}, len(header()) + 3)


def test_what_vllm_tells():
    engine = "(WorkerDict pid=9) INFO Initializing a V1 LLM engine (v0.8.5) with config: model='Qwen/Qwen3-8B', tp=2"
    log = read(engine, ASLEEP.format("12.25"), ASLEEP.format("12.50"))
    assert (log.model, log.versions) == ("Qwen/Qwen3-8B", {"vllm": "0.8.5"})
    assert log.sleep["left"] == 12.5 * 2**30


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("INFO 04-12 vLLM API server version 0.8.3", [("vllm", "0.8.3")]),
        ("Initializing a V1 LLM engine (v0.8.5.post1) with config: torch_dtype", [("vllm", "0.8.5.post1")]),
        ("torch==2.6.0+cu124", [("torch", "2.6.0")]),
        ("verl==0.4.0.dev0", [("verl", "0.4.0.dev0")]),
        ("sglang version: 0.4.6.post5", [("sglang", "0.4.6.post5")]),
        ("flash-attn 2.7 requires torch==2.6.0", []),
        ("pip install torch==2.5.1", []),
        ("mytorch==1.0.0", []),
    ],
)
def test_versions(line, expected):
    assert list(facts_in(line)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GPU 0: NVIDIA H20", ["H20"]),
        ("NVIDIA A100-SXM4-80GB", ["A100-SXM4-80GB"]),
        ("E=8,device_name=NVIDIA_H100_80GB_HBM3.json", ["H100 80GB HBM3"]),
        ("faster on NVIDIA H100 cards", []),
        ("see the NVIDIA A100 whitepaper", []),
    ],
)
def test_cards(line, expected):
    assert list(facts_in(line)) == [("gpu", name) for name in expected]


def test_contradictions_are_not_decided():
    log = read("torch==2.6.1", "torch==2.6.10", "GPU 0: NVIDIA H20", "GPU 1: NVIDIA L40S", step(1, gib=1))
    assert (log.versions, log.gpu) == ({}, "")
    assert places(log) == ["run.log:1:1 unread", "run.log:3:1 unread"]


class Endless(io.RawIOBase):
    """A log that is never completely in memory."""

    def __init__(self, line: bytes, size: int) -> None:
        self._line, self._left = line, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer):
        take = min(len(buffer), self._left)
        self._left -= take
        buffer[:take] = (self._line * (take // len(self._line) + 1))[:take]
        return take


@pytest.mark.parametrize(
    "line",
    [b"(WorkerDict pid=3) nothing of interest in this line, as in most others\n", b"x", b"\0", b"{'data': {"],
    ids=["lines", "one line", "zeros", "brackets"],
)
def test_memory_is_bounded(line):
    tracemalloc.start()
    try:
        read_log(io.BufferedReader(Endless(line, 3 << 20)), "run.log")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 << 19


BAR = "\rProcessed prompts: 100 of 1000 [00:01<00:02, 12.1it/s]"


def test_a_progress_bar_of_any_length_hides_no_figure():
    text = (
        f"{BAR * 2000}\r{step(1, gib=71.3)}\n{BAR * 9}\r(WorkerDict pid=3) torch.OutOfMemoryError: CUDA out\n"
    )
    log = read_log(io.BytesIO(text.encode()), "run.log")
    assert max(log.figures.values("perf/max_memory_allocated_gb")) == 71.3
    assert (str(log.failure.place), log.problems) == (f"run.log:2:{len(BAR) * 9 + 2}", ())


def test_zero_bytes_count_as_nothing():
    text = f"{step(1, gib=70.5)}\n{step(2, gib=71.3)}\n"
    for content in (b"\0" * (3 << 20) + text.encode(), text.encode("utf-16")):
        log = read_log(io.BytesIO(content), "run.log")
        assert (max(log.figures.values("perf/max_memory_allocated_gb")), log.problems) == (71.3, ())


PIECES = st.sampled_from(
    [
        WHO, "step:1 - ", "step:0 - ", "perf/max_memory_allocated_gb:", "np.float64(", "71.3", ")", " - ", "\r",
        "\n", "{'actor_rollout_ref': {", "'a': ", "[", "]", "}", ",", "'", '"', "\\", "inf", "\x1b[36m", "(", "1e999",
        " ", "\n ", "NVIDIA H100 80GB HBM3", "torch==2.6.0", "OutOfMemoryError: ", "vLLM API server version 0.8.3",
    ]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=5), max_size=60))
def test_any_text(parts):
    log = read_log(io.BytesIO("".join(parts).encode("utf-8", "surrogatepass")), "run.log")
    assert all(problem.place.line >= 1 for problem in log.problems)
