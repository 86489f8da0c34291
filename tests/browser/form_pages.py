"""Pages with forms of ``.. verl-what-if::``, the actions of a reader, and the expected content."""

from __future__ import annotations

from sphinx_verl_resources.answer.answer import answer
from sphinx_verl_resources.answer.command import command_of
from sphinx_verl_resources.answer.question import Question
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.records import Links
from sphinx_verl_resources.units import gib_number
from sphinx_verl_resources.views.verdicts import title

FIRST = {"model": "Qwen/Qwen2.5-7B", "count": "8", "gpu": "H100", "lora": "0", "response": "1024"}
OTHERS = {
    "model": "Qwen/Qwen2.5-72B-Instruct", "count": "32", "gpu": "RTX-4090", "lora": "32", "response": "8192",
}  # fmt: skip
#: Styles inside the page come from Sphinx's own templates; a test checks that the form has none.
STRICT = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:"
}


def settle(page):
    """Wait until all answers are loaded."""
    page.locator("body:not(:has([aria-busy]))").wait_for(state="attached")


def choose(page, **chosen):
    """Make a choice in the first form as a reader does, and wait for the answer."""
    for name, value in chosen.items():
        page.locator(f"select[name={name}]").first.select_option(value)
    settle(page)


def query(chosen):
    return "&".join(f"if-{name}={value}" for name, value in chosen.items())


#: One query for everything, because each query to the browser takes time.
LOOK = """(form) => {
  const lines = [...form.querySelectorAll("p[class^=verl-if]:not([hidden])")];
  return {
    chosen: Object.fromEntries([...form.querySelectorAll("select")].map((field) => [field.name, field.value])),
    lines: Object.fromEntries(lines.map((line) => [line.className.slice(8), line.textContent.trim()])),
    links: [...form.querySelectorAll("p:not([hidden]) .verl-if-text a")].map((link) => link.hash),
    badge: form.querySelector(".verl-verdict").className,
    script: [...form.querySelectorAll(".verl-if-script:not([hidden])")].map((link) => [link.href, link.title]),
    command: form.querySelector("pre").textContent,
    shown: [...form.querySelectorAll("button, .verl-if-command")].map((element) => !element.hidden),
  };
}"""


def shown(page, place="form.verl-what-if"):
    """Return the choices and the answer."""
    return page.locator(place).first.evaluate(LOOK)


DATA = EstimatorContext()


def answered(chosen):
    """Return the visible answer, without the choices."""
    count, lora, response = (int(chosen[name]) for name in ("count", "lora", "response"))
    return answer(Question(chosen["model"], count, chosen["gpu"], lora=lora, response=response), DATA)


def check(found, chosen):
    """Check that the form shows the answer; ``test_the_script_says_what_the_server_has_written`` compares all words."""
    expected = answered(chosen)
    best, lines = expected.best.estimate, found["lines"]
    assert found["chosen"] == chosen
    assert found["badge"] == f"verl-verdict verl-verdict-{expected.verdict}"
    assert lines["verdict"].startswith(f"{title(expected.verdict)}. Estimated for GRPO. ")
    runs = [run for run in expected.evidence if run.word != "claimed"][:2]
    smallest = [] if runs or not expected.trust.smallest else [expected.trust.smallest]
    assert found["links"] == [f"#run-{run.id}" for run in runs or smallest]
    figures = f"{gib_number(best.low)} to {gib_number(best.high)} GiB per GPU with {expected.best.name}"
    assert lines["estimated"].startswith(f"Estimated: {figures}; the GPU has {gib_number(best.capacity)}.")
    assert lines["phase"] == f"Peak phase: {best.peak_phase.label}"
    assert ("plan" in lines) is (expected.verdict != "fits")
    is_of_use = expected.verdict != "does-not-fit"
    assert found["command"] == (command_of(expected.best, DATA) if is_of_use else "")
    assert found["shown"] == [is_of_use] * 2, "the command and the button"
    scripts = [run for run in runs if run.word == "ran" and run.script][:1]
    assert [address for address, _ in found["script"]] == [
        Links().file(run.script.ref, run.script.path) for run in scripts
    ]


LABEL = {
    "model": "Model", "count": "GPUs", "gpu": "GPU type", "lora": "Trained", "response": "Longest response",
}  # fmt: skip
