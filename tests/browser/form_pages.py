"""Pages with forms of ``.. verl-what-if::``, the actions of a reader, and the expected content."""

from __future__ import annotations

from sphinx_verl_resources.answer.answer import answer
from sphinx_verl_resources.answer.command import command_of
from sphinx_verl_resources.answer.question import Question
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.links import Links
from sphinx_verl_resources.run_cells import title_and_batch
from sphinx_verl_resources.units import gib_number
from sphinx_verl_resources.views.answer import NO_RUN, measured_text
from sphinx_verl_resources.views.verdicts import title

FORM = """\
.. verl-what-if::
   :models: Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-7B, Qwen/Qwen2.5-72B-Instruct
   :gpus: RTX-4090, H100, H800, B200
   :counts: 2 8 32
   :responses: 512 1024 8192
"""
#: A form with a model that has no estimate.
OUTSIDE = """\
.. verl-what-if::
   :models: Qwen/Qwen2.5-7B, Qwen/Qwen2.5-0.5B
   :gpus: H100
   :counts: 8
   :responses: 1024

   actor_rollout_ref.rollout.tensor_model_parallel_size: 4
"""
#: Forms with first answers of other kinds, each with another choice.
FIRSTS = """\
.. verl-what-if::
   :models: Qwen/Qwen2.5-32B, Qwen/Qwen2.5-0.5B
   :gpus: H100
   :counts: 8
   :responses: 1024

.. verl-what-if::
   :models: Qwen/Qwen2.5-72B-Instruct, Qwen/Qwen2.5-0.5B
   :gpus: RTX-4090
   :counts: 2 32
   :responses: 1024

.. verl-what-if::
   :models: Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-7B-Instruct-1M
   :gpus: H100
   :counts: 8
   :responses: 1024

   actor_rollout_ref.rollout.tensor_model_parallel_size: 4
"""
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


BELOW = "the estimate is below every such run."


def check(found, chosen):
    """Check that the form shows the answer."""
    expected = answered(chosen)
    best, lines = expected.best.estimate, found["lines"]
    assert found["chosen"] == chosen
    assert found["badge"] == f"verl-verdict verl-verdict-{expected.verdict}"
    assert lines["verdict"].startswith(f"{title(expected.verdict)}. Estimated for GRPO. ")
    if expected.verdict == "fits":
        capacity, high = (float(gib_number(size)) for size in (best.capacity, best.high))
        is_tight = capacity - high < (expected.trust.mean_error or 0) * high
        end = f"{capacity - high:.1f} GiB to spare" + (
            ", less than the average error of such estimates." if is_tight else "."
        )
        assert lines["verdict"].endswith(end)
        assert ("Tight" in lines["verdict"]) is is_tight
    runs = [run for run in expected.evidence if run.was_seen_to_run][:2]
    smallest = [] if runs or not expected.trust.smallest else [expected.trust.smallest]
    assert found["links"] == [f"#run-{run.id}" for run in runs or smallest]
    assert lines.get("none") == (None if runs or smallest else NO_RUN)
    for word in ("ran", "reported"):
        titles = ", ".join(title_and_batch(run) for run in runs if run.word == word)
        assert lines.get(word, "") == (f"{word.capitalize()}: {titles}" if titles else "")
        start = {"ran": "Smallest that ran: ", "reported": "Smallest reported: "}[word]
        end = (
            BELOW
            if expected.trust.undercuts
            else "no such run had so little GPU memory and responses this long."
        )
        (line,) = [f"{start}{title_and_batch(run)}; {end}" for run in smallest if run.word == word] or [""]
        assert lines.get(f"smallest-{word}", "") == line
    figures = f"{gib_number(best.low)} to {gib_number(best.high)} GiB per GPU with {expected.best.name}"
    assert lines["estimated"].startswith(f"Estimated: {figures}; the GPU has {gib_number(best.capacity)}.")
    assert lines["trust"] == f"How sure: {measured_text(expected.trust)}"
    assert lines["phase"] == f"Peak phase: {best.peak_phase.label}"
    assert ("plan" in lines) is (expected.verdict != "fits")
    command, host = command_of(expected.best, DATA.registries), round(best.host.total / 2**30)
    use = [command, f"Host memory: {host:,} GiB per node."]
    is_of_use = expected.verdict != "does-not-fit"
    assert [found["command"], lines.get("host", "")] == (use if is_of_use else ["", ""])
    assert found["shown"] == [bool(found["command"])] * 2, "the command and the button"
    with_script = [run for run in runs if run.word == "ran" and run.script]
    assert found["script"] == [
        [DATA_LINKS.file(run.script.ref, run.script.path), title_and_batch(run)] for run in with_script[:1]
    ]


DATA_LINKS = Links()


LABEL = {
    "model": "Model", "count": "GPUs", "gpu": "GPU type", "lora": "Trained", "response": "Longest response",
}  # fmt: skip
