"""The speed of a log: which steps count in which release, against sums by hand."""

from __future__ import annotations

import io

import pytest

from sphinx_verl_resources.logs.log import read_log
from sphinx_verl_resources.speed.steps import speed_of

WHO = "(TaskRunner pid=7) "
TESTING, SAVING = "timing_s/testing", "timing_s/save_checkpoint"


def log(*steps: str) -> list[dict[str, float]]:
    """Return the figures of steps, as read from a log: tokens, seconds and what else is in a line."""
    lines = [
        f"{WHO}step:{at} - {figures.replace('T=', 'perf/total_num_tokens:').replace('S=', 'perf/time_per_step:')}"
        for at, figures in enumerate(steps)
    ]
    return read_log(io.BytesIO("\n".join(["start", *lines, ""]).encode()), "run.log").figures.steps


#: A validation before training, two steps of warm-up, then ten steps of 6,400 tokens in 10 seconds.
FIRST = ["val-core/acc:0.5", "T=6400 - S=90", "T=6400 - S=30"]
TEN = ["T=6400 - S=10.0"] * 10
SPEED = {
    "tokens_per_second_per_gpu": 80.0,
    "step_seconds": 10.0,
    "step_seconds_range": (10.0, 10.0),
    "steps": 10,
}


@pytest.mark.parametrize(
    ("steps", "version", "expected"),
    [
        pytest.param([*FIRST, *TEN], None, SPEED, id="warm-up and validation before training do not count"),
        pytest.param(
            [*FIRST, *TEN, "val-core/acc:0.5"], None, SPEED, id="a line of validation alone does not count"
        ),
        pytest.param(
            [*FIRST, *["T=np.int64(6400) - S=np.float64(10.0)"] * 10], None, SPEED, id="numbers of NumPy"
        ),
        pytest.param(
            [*FIRST, *TEN, f"T=6400 - S=60 - {TESTING}:50"], (0, 5, 0), SPEED, id="validation inside, v0.5"
        ),
        # Validation is outside: 11 steps, 70,400 tokens in 112 seconds.
        pytest.param(
            [*FIRST, *TEN, f"T=6400 - S=12 - {TESTING}:50"],
            (0, 8, 0),
            {**SPEED, "tokens_per_second_per_gpu": 78.6, "step_seconds": 10.2, "step_seconds_range": (10.0, 12.0),
             "steps": 11},
            id="validation outside, v0.8",
        ),
        pytest.param([*FIRST, *TEN, f"T=6400 - S=60 - {SAVING}:50"], (0, 5, 0), SPEED, id="checkpoint inside, v0.5"),
        pytest.param([*FIRST, *TEN, f"T=6400 - S=60 - {SAVING}:50"], (0, 7, 1), SPEED, id="and v0.7.1"),
        pytest.param(
            [*FIRST, *TEN, f"T=6400 - S=10 - {SAVING}:50"], (0, 7, 0), {**SPEED, "steps": 11},
            id="checkpoint outside, v0.7.0",
        ),
        pytest.param(
            [*FIRST, *TEN, f"T=1 - S=60 - {SAVING}:50", f"T=1 - S=60 - {TESTING}:9"], None, SPEED,
            id="an unknown release: neither",
        ),
        # Tokens by time, not the mean of speeds: 70,400 tokens in 10 × 10 + 100 seconds on 8 GPUs.
        pytest.param(
            [*FIRST, *TEN, "T=6400 - S=100"], (0, 9, 0),
            {**SPEED, "tokens_per_second_per_gpu": 44.0, "step_seconds": 18.2, "step_seconds_range": (10.0, 100.0),
             "steps": 11},
            id="a slow step counts by its time",
        ),
        pytest.param(FIRST[:2], None, {"step_seconds": 90.0, "steps": 1}, id="one step"),
        pytest.param(
            [*FIRST, *TEN[:9]], None, {name: SPEED[name] for name in ("step_seconds", "step_seconds_range")} | {"steps": 9},
            id="nine steps are too few for a speed",
        ),
        pytest.param(["T=6400 - S=900", *FIRST[1:], *TEN], None, SPEED, id="step 0 does not count"),
        pytest.param(
            ["timing_s/step:90"] * 3 + ["timing_s/step:10"] * 4, None,
            {"step_seconds": 10.0, "step_seconds_range": (10.0, 10.0), "steps": 4}, id="times without tokens",
        ),
        # 100 sequences with responses of 40 tokens, and 200 with 70.
        pytest.param(
            [*FIRST, *["T=6400 - S=10 - prompt_length/mean:24 - response_length/mean:40"] * 5,
             *["T=18800 - S=10 - prompt_length/mean:24 - response_length/mean:70"] * 5],
            None,
            {**SPEED, "tokens_per_second_per_gpu": 157.5, "response_tokens": 60},
            id="the mean response is over sequences",
        ),
    ],
)  # fmt: skip
def test_steps_that_count(steps, version, expected):
    speed = speed_of(log(*steps), 8, version)
    assert speed.fields == expected
    assert bool(speed.missing) == ("T=" in str(steps) and "tokens_per_second_per_gpu" not in expected)


def test_a_step_that_is_logged_twice_counts_once():
    once = log(*FIRST, *TEN)
    assert speed_of([step for step in once for _ in range(2)], 8, None).fields == SPEED


def test_what_is_missing_or_doubtful():
    ten = log(*FIRST, *["T=6400 - S=10 - perf/throughput:160.0"] * 10)
    assert speed_of(ten, 4, None).note == ""
    all_of_them = speed_of(ten, 8, None)
    assert all_of_them.fields["tokens_per_second_per_gpu"] == 80
    assert all_of_them.note == "perf/throughput in the log is for 4 GPUs, the recorded speed for 8"
    half = [*ten[:8], *({**step, "perf/throughput": 0.0} for step in ten[8:])]
    assert speed_of(half, 4, None).note == "", "only some lines have it"
    assert speed_of(ten, None, None).missing == "the number of GPUs is unknown"
    assert speed_of(log("timing_s/step:9"), 8, None).fields == {"step_seconds": 9, "steps": 1}
    assert speed_of([], 8, None) == ({}, "", "", "")
    assert speed_of(log(*FIRST, *TEN[:9]), 8, None).missing.startswith(
        "9 steps count after 2 of warm-up, and"
    )
    saved = speed_of(log(*FIRST, *[f"T=6400 - S=10 - {SAVING}:1"] * 12), 8, None)
    assert saved.missing == "0 of 12 steps have no validation or checkpoint, and 10 are needed"
    assert "verl's release" in saved.remedy
    assert saved.fields == {"step_seconds": pytest.approx(17.1)}, "of all steps, since none counts"
    assert speed_of(log(*["T=1e-5 - S=10"] * 14), 8, None).fields.keys() == {
        "step_seconds",
        "step_seconds_range",
        "steps",
    }
