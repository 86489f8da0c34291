"""Pages with forms of ``.. verl-what-if::``, the actions of a reader, and the expected content."""

from __future__ import annotations

import re

from sphinx_verl_resources.fit.answer import answer
from sphinx_verl_resources.fit.command import command_of
from sphinx_verl_resources.fit.form import gpu_groups
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.fit.words import as_title, label, lines, whole
from sphinx_verl_resources.memory.registries import EstimatorContext

DATA = EstimatorContext()
FIRST = {"model": "Qwen/Qwen2.5-7B", "count": "8", "gpu": "H100-80GB", "lora": "0", "response": "1024"}
OTHERS = {"model": "Qwen/Qwen2.5-0.5B", "count": "32", "gpu": "L4", "lora": "32", "response": "16384"}
LABEL = {
    "model": "Model", "count": "GPUs", "gpu": "GPU memory", "lora": "Trained", "response": "Longest response",
}  # fmt: skip
#: Styles inside the page come from Sphinx's own templates; a test checks that the form has none.
STRICT = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:"
}
#: One query for everything, because each query to the browser takes time.
LOOK = """(form) => {
  const text = (place) => [...form.querySelectorAll(place)].map((element) => element.textContent.trim());
  return {
    chosen: Object.fromEntries([...form.querySelectorAll("select")].map((field) => [field.name, field.value])),
    badge: form.querySelector(".verl-verdict").className,
    title: text(".verl-verdict")[0],
    why: text(".verl-if-why")[0],
    lines: text(".verl-if-lines p"),
    links: [...form.querySelectorAll(".verl-if-lines a")].map((link) => link.getAttribute("href")),
    bars: text("[role=figure]:not([hidden]) > :is(span, strong)"),
    ends: [...form.querySelectorAll("[role=figure]:not([hidden]) > svg")].map((svg) => Math.round(
      Math.max(...[...svg.querySelectorAll("[fill^='#']:not(text)")].map((piece) => piece.getBoundingClientRect().right))
        - svg.getBoundingClientRect().left)),
    widths: [...form.querySelectorAll("[role=figure] > svg")].map((svg) => svg.getBoundingClientRect().width),
    keys: text("[role=figure]:not([hidden]) > div > span"),
    plan: text(".verl-if-plan code")[0],
    command: form.querySelector("details[hidden]") ? "" : form.querySelector("pre").textContent,
  };
}"""


def settle(page):
    """Wait until all answers are loaded."""
    page.locator("body:not(:has([aria-busy]))").wait_for(state="attached")


def choose(page, **choices):
    """Make a choice in the first form as a reader does, and wait for the answer."""
    for name, value in choices.items():
        page.locator(f"select[name={name}]").first.select_option(value)
    settle(page)


def query(choices):
    return "&".join(f"if-{name}={value}" for name, value in choices.items())


def read_form(page, place="form.verl-what-if"):
    """Return the choices and the answer."""
    return page.locator(place).first.evaluate(LOOK)


def check(result, choices):
    """Check that the form shows the answer, for the number of GPUs that it says; return the answer."""
    count = int(re.sub(".*This is for ([0-9,]+) of .*", r"\1", result["why"]).replace(",", "")
                if "This is for" in result["why"] else choices["count"])  # fmt: skip
    request = Question(
        choices["model"], count, choices["gpu"], lora=int(choices["lora"]), response=int(choices["response"])
    )
    expected = answer(request, DATA)
    group = next(group for group in gpu_groups(DATA) if group[0].name == choices["gpu"])
    best, (why, *others) = expected.best.estimate, lines(expected, group)
    assert result["chosen"] == choices
    assert (result["badge"], result["title"]) == (
        f"verl-verdict verl-verdict-{expected.verdict}",
        as_title(label(expected.verdict)),
    )
    assert result["why"].startswith(why.plain)
    fits = expected.verdict == "fits"
    assert result["lines"][0].startswith("To make it fit: ") is not fits
    expected_lines = [f"{line.title}: {line.plain}" for line in others]
    assert result["lines"][not fits :] == expected_lines
    assert result["links"] == [f"rows.html#run-{run.id}" for line in others for run in line.runs]
    words = iter(result["bars"])
    assert [(name.removesuffix(" (peak)"), size) for name, size in zip(words, words, strict=True)] == [
        (phase.label, f"{whole(phase.total)} GiB") for phase in best.phases
    ]
    most = max(best.high, best.capacity)
    for end, width, phase in zip(result["ends"], result["widths"], best.phases, strict=True):
        assert abs(end / width - phase.total / most) < 0.04, "each bar ends at its total"
    assert result["keys"][-2:] == [
        f"Range of the peak: {whole(best.low)} to {whole(best.high)} GiB",
        f"GPU capacity: {whole(best.capacity)} GiB",
    ]
    fits_not = expected.verdict == "does-not-fit"
    assert result["command"] == ("" if fits_not else command_of(expected.best, DATA))
    return expected
