"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.units import gb, gib, share, short_number, signed

SHOWN = {
    short_number: {
        0: "0", 2.0: "2", 0.3: "0.3", 2048: "2048", 9999: "9999", 10_000: "10,000", 3_000_000_000: "3,000,000,000",
        12345.5: "12,345.5", 1e-7: "0.0000001", -12_000: "-12,000", -2048: "-2048", 9999.99: "9999.99", 1e16: "10,000,000,000,000,000",
    },
    gb: {0: "0.0 GB", 58.2123e9: "58.2 GB", 0.8053e9: "0.81 GB", 1e9: "1.0 GB", 5542.06e9: "5,542.1 GB", 20 * 2**30: "21.5 GB"},
    gib: {20 * 2**30: "20.0 GiB", 2**29: "0.50 GiB"},
    share: {0.1234: "12.3 %", -0.5: "−50.0 %"},
    lambda value: signed(value, share): {0.0123: "+1.2 %", -0.2177: "−21.8 %", 0: "+0.0 %"},
}  # fmt: skip


@pytest.mark.parametrize("show", SHOWN)
def test_numbers(show):
    assert {value: show(value) for value in SHOWN[show]} == SHOWN[show]


@given(st.integers(-(10**15), 10**15) | st.floats(-1e15, 1e15, allow_nan=False))
def test_plain_loses_nothing(value):
    assert float(short_number(value).replace(",", "")) == value
    assert "e" not in short_number(value)
