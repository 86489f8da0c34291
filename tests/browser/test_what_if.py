"""The form of ``.. verl-what-if::`` in a browser: it shows what the estimator says, and says it to everybody."""

from __future__ import annotations

import re
from itertools import product

import pytest

from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.grid import cell_settings
from sphinx_verl_resources.estimator.phases import LABELS
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.tasks import fitted
from sphinx_verl_resources.sphinx_ext.directives.sweeps import LENGTHS
from sphinx_verl_resources.units import gib, gib_number
from sphinx_verl_resources.views.verdicts import reason, title

FORM = """\
.. verl-what-if::
   :models: Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-7B, meta-llama/Llama-3.1-70B
   :gpus: RTX-4090, H100, H800, B200
   :counts: 1 8 64
"""
#: A form whose first model has no estimate.
OUTSIDE = """\
.. verl-what-if::
   :models: Qwen/Qwen2.5-7B, Qwen/Qwen2.5-0.5B
   :gpus: H100
   :counts: 8

   actor_rollout_ref.rollout.tensor_model_parallel_size: 4
"""
FIRST = {
    "model": "Qwen/Qwen2.5-7B", "gpu": "H100", "count": "8", "task": "GRPO", "tokens": "16384", "offload": "all",
    "lora": "0",
}  # fmt: skip
OTHERS = {
    "model": "meta-llama/Llama-3.1-70B", "gpu": "B200", "count": "64", "task": "PPO", "tokens": "4096",
    "offload": "none", "lora": "32",
}  # fmt: skip
#: Styles inside the page are those of Sphinx's own templates; the form has none, which is looked at.
STRICT = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:"
}


@pytest.fixture(scope="module")
def folder(new_project):
    """A page with a form, one with two, one with a form outside of which something lies, and one without."""
    project = new_project("what-if")
    project.page(FORM).page(f"{FORM}\n{OUTSIDE}", "two.rst").page(OUTSIDE, "outside.rst").page(
        "Text.", "none.rst"
    )
    # Other themes break the strict policy themselves.
    build = project.build(html_theme="basic", html_sidebars={"**": []})
    assert build.warnings == []
    (build.out / "favicon.ico").write_bytes(b"")  # which the browser asks for by itself
    return build.out


@pytest.fixture(scope="module")
def usual(new_project):
    """A page with a form in a theme that knows narrow windows."""
    build = new_project("usual").page(FORM).build(html_theme="alabaster")
    (build.out / "favicon.ico").write_bytes(b"")
    return build.out


@pytest.fixture
def open_page(site, folder):
    """A function: a page under a strict policy, as the browser shows it."""
    served = site(folder, STRICT)
    return served.open


def query(chosen):
    return "&".join(f"if-{name}={value}" for name, value in chosen.items())


#: Asked at once, since each question to the browser takes its time.
LOOK = """(form) => {
  const texts = (place, inside) => [...inside.querySelectorAll(place)].map((element) => element.textContent.trim());
  return {
    chosen: Object.fromEntries([...form.querySelectorAll("select")].map((field) => [field.name, field.value])),
    answer: texts("[role=status] p:not([hidden])", form),
    rows: [...form.querySelectorAll("tbody tr")].map((row) => texts("th, td", row)),
    drawing: texts("svg text", form),
    bars: form.querySelectorAll("svg > rect").length,
  };
}"""


def shown(page, place=".verl-what-if"):
    """What is chosen, and what is said of it."""
    return page.locator(place).first.evaluate(LOOK)


#: All fields at once; one by one they are tested below.
CHOOSE = """(form, chosen) => {
  for (const [name, value] of Object.entries(chosen)) {
    form.elements[name].value = value;
  }
  form.dispatchEvent(new Event("change"));
}"""

FACTS = read_data([]).registries


def estimated(chosen):
    """What the estimator says by itself."""
    config = cell_settings(
        chosen["task"], int(chosen["tokens"]), chosen["offload"], int(chosen["lora"]), LENGTHS
    )
    request = Request(chosen["model"], config, int(chosen["count"]), chosen["gpu"])
    return estimate(fitted(request, FACTS), FACTS)


def check(found, chosen):
    """The form shows what the estimator says."""
    expected = estimated(chosen)
    assert found["chosen"] == chosen
    answer, peak_phase = found["answer"]
    assert answer.startswith(f"{title(expected.verdict)}. {reason(expected)}")
    assert gib(expected.capacity) in answer
    assert peak_phase == f"Peak phase: {LABELS[expected.peak_phase.name]}."
    peak_row = f"{expected.peak_phase.label} (peak phase)"
    rows = [
        [peak_row if phase is expected.peak_phase else phase.label, gib_number(phase.total)]
        for phase in expected.phases
    ]
    assert found["rows"] == rows
    assert found["drawing"][: 2 * len(rows) : 2] == [phase.label for phase in expected.phases]
    sizes = found["drawing"][1 : 2 * len(rows) : 2]
    assert [size.partition(" (+")[0] for size in sizes] == [gib(phase.total) for phase in expected.phases]
    over = sum("(+" in size for size in sizes)
    assert over == sum(phase.total > expected.capacity for phase in expected.phases)
    assert found["bars"] == len(rows) + over
    assert f"the GPU offers {gib(expected.capacity)}" in found["drawing"]


SAMPLE = [
    dict(zip(FIRST, values, strict=True))
    for values in product(
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-70B"), ("RTX-4090", "H100", "H800", "B200"),
        ("1", "8", "64"), ("GRPO", "PPO", "DAPO"), ("4096", "8192", "16384", "32768"), ("none", "all"), ("0", "32"),
    )
][10::61]  # fmt: skip


def test_what_is_shown_is_what_the_estimator_says(open_page):
    page = open_page()
    verdicts = set()
    for chosen in SAMPLE:
        page.locator(".verl-what-if form").evaluate(CHOOSE, chosen)
        check(shown(page), chosen)
        verdicts.add(estimated(chosen).verdict)
    assert len(SAMPLE) > 10
    assert verdicts >= {"fits", "depends-on-lengths", "does-not-fit"}


def test_it_opens_with_a_usual_choice(open_page):
    page = open_page()
    check(shown(page), FIRST)
    assert "?" not in page.url, "nobody has chosen anything"


@pytest.mark.parametrize("name", FIRST)
def test_each_field_changes_the_answer_and_the_address(open_page, name):
    page = open_page("index.html?theirs=1#what")
    page.get_by_label(re.compile("^" + LABEL[name])).select_option(OTHERS[name])
    chosen = {**FIRST, name: OTHERS[name]}
    check(shown(page), chosen)
    before, _, fragment = page.url.partition("#")
    assert fragment == "what"
    assert before.partition("?")[2].replace("%2F", "/") == f"theirs=1&{query({**chosen})}"
    assert page.evaluate("history.length") == 2, "no entry of its own"


LABEL = {
    "model": "Model", "gpu": "GPU$", "count": "Number of GPUs", "task": "Task", "tokens": "Tokens per GPU",
    "offload": "Offloaded", "lora": "LoRA",
}  # fmt: skip


def test_an_address_opens_the_form_as_it_was_left(open_page):
    check(shown(open_page(f"index.html?{query(OTHERS)}")), OTHERS)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("if-gpu=H9000", "if-gpu=H9000"),
        ("if-count=9&if-tokens=", "if-count=9, if-tokens="),
        ("if-model=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "if-model=<img src=x onerror=alert(1)>"),
        (f"if-task={'x' * 5000}", f"if-task={'x' * 80}"),
        ("if-lora=constructor&if-offload=__proto__", "if-offload=__proto__, if-lora=constructor"),
    ],
    ids=["unknown", "several", "markup", "long", "names of JavaScript"],
)
def test_nonsense_in_the_address_is_said_and_ignored(open_page, asked, said):
    page = open_page(f"index.html?{asked}")
    found = shown(page)
    problem = found["answer"].pop(0)
    assert f"what the form does not have: {said}. Its own choice" in problem
    check(found, FIRST)
    assert page.locator(".verl-what-if img").count() == 0
    page.locator("select[name=count]").select_option("64")
    check(shown(page), {**FIRST, "count": "64"})


def test_case_does_not_matter_in_the_address(open_page):
    check(shown(open_page("index.html?if-gpu=b200&if-task=ppo")), {**FIRST, "gpu": "B200", "task": "PPO"})


def test_a_combination_outside_the_grid_says_so_and_why(open_page):
    page = open_page("outside.html")
    found = shown(page)
    (answer,) = found["answer"]
    assert answer.startswith("Outside the grid. There is no estimate for this combination: ")
    assert "does not divide the model's 14 attention heads" in answer
    assert (found["rows"], found["drawing"]) == ([], [])
    page.locator("select[name=model]").select_option("Qwen/Qwen2.5-7B")
    assert len(shown(page)["rows"]) > 4


def test_the_keyboard_reaches_every_field_in_order(open_page):
    page = open_page()
    page.locator("select[name=model]").focus()
    order = []
    for _number in FIRST:
        order.append(page.evaluate("document.activeElement.name"))
        page.keyboard.press("Tab")
    assert order == list(FIRST)
    page.locator("select[name=tokens]").focus()
    page.keyboard.press("ArrowUp")
    check(shown(page), {**FIRST, "tokens": "8192"})


def test_it_has_names_for_those_who_do_not_see_it(open_page):
    page = open_page()
    assert page.get_by_role("group", name="What if").count() == 1
    for label in ("Model", "GPU", "Number of GPUs", "Task", "Tokens per GPU", "Offloaded", "LoRA"):
        assert page.get_by_role("combobox", name=label, exact=True).count() == 1
    assert page.get_by_role("status").inner_text().startswith("Fits.")
    assert page.get_by_role("table", name="Memory per GPU, phase by phase").count() == 1
    drawing = page.get_by_role(
        "img", name=re.compile("^Memory per GPU, phase by phase, the GPU offers 79.1 GiB")
    )
    assert drawing.count() == 1
    assert page.locator(".verl-what-if [style]").count() == 0


def test_two_forms_on_a_page_are_apart(open_page):
    page = open_page(f"two.html?{query(OTHERS)}")
    check(shown(page), OTHERS)
    second = shown(page, ".verl-what-if >> nth=1")
    assert second["chosen"]["model"] == "Qwen/Qwen2.5-0.5B"
    assert second["answer"][0].startswith("Outside the grid.")
    page.locator(".verl-what-if").nth(1).locator("select[name=model]").select_option("Qwen/Qwen2.5-7B")
    check(shown(page), OTHERS)
    assert page.url.endswith(query(OTHERS)), "the address is that of the first"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))


def test_without_a_script_stands_the_sentence(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".verl-what-if > p").is_visible()
    assert page.locator(".verl-what-if form, .verl-what-if select").count() == 0


def test_without_its_grid_stands_the_sentence(open_page):
    page = open_page("none.html")
    page.add_script_tag(url="_static/verl-what-if.js")
    assert page.locator("form.verl-what-if-form").count() == 0
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<div class=\"verl-what-if verl-grid-0\"><p>So.</p></div>')"
    )
    page.add_script_tag(url="_static/verl-what-if.js")
    assert page.locator(".verl-what-if > p").is_visible()
    assert page.locator("form.verl-what-if-form").count() == 0


def test_with_a_script_the_sentence_is_for_print(open_page):
    page = open_page()
    sentence, form = page.locator(".verl-what-if > p"), page.locator(".verl-what-if form")
    assert (sentence.is_visible(), form.is_visible()) == (False, True)
    page.emulate_media(media="print")
    assert (sentence.is_visible(), form.is_visible()) == (True, False)


def test_a_page_without_a_form_loads_nothing_of_it(open_page):
    page = open_page("none.html")
    assert page.evaluate("typeof globalThis.verlWhatIf") == "undefined"
    assert page.locator("script[src*=verl-what-if]").count() == 0


def test_it_works_from_a_folder(browser, folder):
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((folder / "index.html").as_uri())
    page.locator("select[name=count]").select_option("64")
    check(shown(page), {**FIRST, "count": "64"})
    assert problems == []


@pytest.mark.parametrize("width", [360, 800, 1440])
def test_it_is_no_wider_than_its_place(site, usual, width):
    page = site(usual).open(viewport={"width": width, "height": 800})
    wide = """(form) => {
      const edge = form.parentElement.getBoundingClientRect().right + 1;
      const inside = [...form.querySelectorAll("*:not(option, svg *)")];
      return inside.filter((one) => one.getBoundingClientRect().right > edge).map((one) => one.tagName);
    }"""
    assert page.locator(".verl-what-if").evaluate(wide) == []
    page.locator("select[name=gpu]").select_option("RTX-4090")
    page.locator("select[name=task]").select_option("PPO")
    boxes = page.evaluate(
        "[...document.querySelectorAll('.verl-what-if svg text')].map((text) => text.getBoundingClientRect().toJSON())"
    )
    for label, size in zip(boxes[0:-2:2], boxes[1:-2:2], strict=True):
        assert label["right"] < size["left"], "a label lies over a figure"
