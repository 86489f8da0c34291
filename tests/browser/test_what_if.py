"""The form of ``.. verl-what-if::`` in a browser: it shows what the estimator says, and says it to everybody."""

from __future__ import annotations

import re
from itertools import product

import pytest

from sphinx_verl_resources.answer.answer import answer
from sphinx_verl_resources.answer.command import command_of
from sphinx_verl_resources.answer.question import Question
from sphinx_verl_resources.catalog.links import Links
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.units import gib_number
from sphinx_verl_resources.views.answer import NO_RUN, trust_text
from sphinx_verl_resources.views.runs import run_title
from sphinx_verl_resources.views.verdicts import title

FORM = """\
.. verl-what-if::
   :models: Qwen/Qwen2.5-0.5B, Qwen/Qwen2.5-7B, Qwen/Qwen2.5-72B-Instruct
   :gpus: RTX-4090, H100, H800, B200
   :counts: 2 8 32
   :responses: 512 1024 8192
"""
#: A form of which one model has no estimate.
OUTSIDE = """\
.. verl-what-if::
   :models: Qwen/Qwen2.5-7B, Qwen/Qwen2.5-0.5B
   :gpus: H100
   :counts: 8
   :responses: 1024

   actor_rollout_ref.rollout.tensor_model_parallel_size: 4
"""
#: Forms whose first answers are of other kinds, each with another choice.
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
#: Styles inside the page are those of Sphinx's own templates; the form has none, which is looked at.
STRICT = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:"
}


@pytest.fixture(scope="module")
def folder(new_project):
    """A page with a form, one with its rows, one with two forms, one with a model without estimates, one without a form."""
    project = new_project("what-if")
    project.page(".. verl-runs::\n", "rows.rst").page(FORM).page(f"{FORM}\n{OUTSIDE}", "two.rst")
    project.page(OUTSIDE, "outside.rst").page("Text.", "none.rst").page(FIRSTS, "firsts.rst")
    # Other themes break the strict policy themselves.
    build = project.build(html_theme="basic", html_sidebars={"**": []})
    assert build.warnings == []
    return build.out


@pytest.fixture(scope="module")
def usual(new_project):
    """A page with a form in a theme that knows narrow windows, and text below."""
    build = new_project("usual").page(FORM + "\nText.\n" * 50).build(html_theme="alabaster")
    return build.out


@pytest.fixture
def open_page(site, folder):
    """A function: a page under a strict policy, as the browser shows it when nothing is loaded any more."""
    served = site(folder, STRICT)

    def opened(path="index.html", **context):
        page = served.open(path, **context)
        settle(page)
        return page

    return opened


def settle(page):
    """Wait until every answer is there."""
    page.locator("body:not(:has([aria-busy]))").wait_for(state="attached")


def choose(page, **chosen):
    """Choose in the first form as a reader does, and wait for the answer."""
    for name, value in chosen.items():
        page.locator(f"select[name={name}]").first.select_option(value)
    settle(page)


def query(chosen):
    return "&".join(f"if-{name}={value}" for name, value in chosen.items())


#: Asked at once, since each question to the browser takes its time.
LOOK = """(form) => {
  const lines = [...form.querySelectorAll("p[class^=verl-if]:not([hidden])")];
  return {
    chosen: Object.fromEntries([...form.querySelectorAll("select")].map((field) => [field.name, field.value])),
    lines: Object.fromEntries(lines.map((line) => [line.className.slice(8), line.textContent.trim()])),
    links: [...form.querySelectorAll("p:not([hidden]) .verl-if-text a")].map((link) => link.hash),
    badge: form.querySelector(".verl-verdict").className,
    script: [...form.querySelectorAll(".verl-if-script:not([hidden])")].map((link) => [link.href, link.textContent]),
    command: form.querySelector("pre").textContent,
    shown: [...form.querySelectorAll("button, .verl-if-command")].map((element) => !element.hidden),
  };
}"""


def shown(page, place="form.verl-what-if"):
    """What is chosen, and what is said of it."""
    return page.locator(place).first.evaluate(LOOK)


DATA = read_data([])


def answered(chosen):
    """What the answer says by itself."""
    count, lora, response = (int(chosen[name]) for name in ("count", "lora", "response"))
    return answer(Question(chosen["model"], count, chosen["gpu"], lora=lora, response=response), DATA)


BELOW = "the estimate is below everything that ran."


def check(found, chosen):
    """The form shows what the answer says."""
    expected = answered(chosen)
    best, lines = expected.best.estimate, found["lines"]
    assert found["chosen"] == chosen
    assert found["badge"] == f"verl-verdict verl-verdict-{expected.verdict}"
    assert lines["verdict"].startswith(f"{title(expected.verdict)}. Estimated for GRPO. ")
    if expected.verdict == "fits":
        capacity, high = (float(gib_number(size)) for size in (best.capacity, best.high))
        assert lines["verdict"].endswith(f"with {capacity - high:.1f} GiB to spare.")
    runs = [run for run in expected.evidence if run.was_seen_to_run][:2]
    smallest = [] if runs or not expected.trust.smallest else [expected.trust.smallest]
    assert found["links"] == [f"#run-{run.id}" for run in runs or smallest]
    assert lines.get("none") == (None if runs or smallest else NO_RUN)
    for word in ("ran", "reported"):
        titles = ", ".join(run_title(run) for run in runs if run.word == word)
        assert lines.get(word, "") == (f"{word.capitalize()}: {titles}" if titles else "")
        start = {"ran": "Smallest that ran: ", "reported": "Smallest that is reported: "}[word]
        end = BELOW if expected.trust.undercuts else "no recorded run bears on this question."
        (line,) = [f"{start}{run_title(run)}; {end}" for run in smallest if run.word == word] or [""]
        assert lines.get(f"smallest-{word}", "") == line
    figures = f"{gib_number(best.low)} to {gib_number(best.high)} GiB per GPU with {expected.best.name}"
    assert lines["estimated"].startswith(f"Estimated: {figures}; the GPU has {gib_number(best.capacity)}.")
    assert lines["trust"] == f"How sure: {trust_text(expected.trust)}"
    assert lines["phase"] == f"Peak phase: {best.peak_phase.label}"
    assert ("plan" in lines) is (expected.verdict != "fits")
    command, host = command_of(expected.best, DATA.registries), round(best.host.total / 2**30)
    use = [command, f"Host memory: {host:,} GiB per node."]
    is_of_use = expected.verdict != "does-not-fit"
    assert [found["command"], lines.get("host", "")] == (use if is_of_use else ["", ""])
    assert found["shown"] == [bool(found["command"])] * 2, "the command and the button"
    with_script = [run for run in runs if run.word == "ran" and run.script]
    assert found["script"] == [
        [DATA_LINKS.file(run.script.ref, run.script.path), f"Script of {run_title(run)}"]
        for run in with_script[:1]
    ]


DATA_LINKS = Links()
SAMPLE = [
    dict(zip(FIRST, values, strict=True))
    for values in product(
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B-Instruct"),
        ("2", "8", "32"), ("RTX-4090", "H100", "H800", "B200"), ("0", "32"), ("512", "1024", "8192"),
    )
][4::17]  # fmt: skip


def test_what_is_shown_is_the_answer(open_page):
    page = open_page()
    verdicts, links, named = set(), 0, set()
    for chosen in SAMPLE:
        choose(page, **chosen)
        found = shown(page)
        check(found, chosen)
        verdicts.add(answered(chosen).verdict)
        links += len(found["links"])
        named |= found["lines"].keys()
        named |= {BELOW} if BELOW in found["lines"].get("smallest-ran", "") else set()
    assert len(SAMPLE) > 10
    assert verdicts >= {"fits", "does-not-fit"}
    assert links
    assert named >= {"ran", "smallest-ran", BELOW}


#: Everything that a reader or a screen reader can tell of an answer.
WHOLE = """(form) => [...form.querySelectorAll(".verl-if-answer, .verl-if-answer *")].map((element) => [
  element.tagName, element.className, element.hidden, element.textContent, element.getAttribute("href"), element.role,
])"""


def test_the_script_says_what_the_server_has_written(open_page):
    """Text for text, once another answer was shown in between."""
    page = open_page()
    check(shown(page), FIRST)
    assert "?" not in page.url, "nobody has chosen anything"
    told = [told_again(page, page.locator("form.verl-what-if"))]
    page = open_page("firsts.html")
    told += [told_again(page, form) for form in page.locator("form.verl-what-if").all()]
    assert [verdict.partition(".")[0] for verdict in told] == ["Fits", "Fits", "Does not fit", "No estimate"]


def told_again(page, form):
    """The verdict of a form's first answer, which is the same once another answer was shown."""
    model = form.locator("select[name=model]")
    first, other = model.input_value(), model.locator("option:not([selected])").last
    written = form.evaluate(WHOLE)
    model.select_option(other.get_attribute("value"))
    settle(page)
    assert form.evaluate(WHOLE) != written
    model.select_option(first)
    settle(page)

    def plain(elements):
        """Without the spans that Sphinx writes around words."""
        return [
            [kind, name, *rest]
            for kind, name, *rest in elements
            if name != "pre" and (kind, name) != ("SPAN", "")
        ]

    again = [[kind, {"": "reference internal"}.get(name, name) if kind == "A" else name, *rest]
             for kind, name, *rest in form.evaluate(WHOLE)]  # fmt: skip
    assert plain(again) == plain(written)
    return form.locator("[role=status]").text_content()


def test_files_are_loaded_when_they_are_needed(open_page):
    page = open_page()
    loaded = []
    page.on("request", lambda request: loaded.append(request.url.rpartition("/")[2]))
    assert page.locator("script[src*=verl-what-if-]").count() == 0
    choose(page, count="32")
    assert len(loaded) == 1
    assert re.fullmatch(r"verl-what-if-[0-9a-f]{12}\.js", loaded[0])
    choose(page, count="2", lora="32")
    assert len(loaded) == 1
    choose(page, model=OTHERS["model"])
    assert len(set(loaded)) == 2


@pytest.mark.parametrize(
    ("chosen", "ways"),
    [
        ({"model": "Qwen/Qwen2.5-72B-Instruct", "count": "2"}, "LoRA (rank 32) or 8 GPUs"),
        ({**OTHERS, "count": "2"}, "32 GPUs"),
        (
            {"model": "Qwen/Qwen2.5-72B-Instruct", "gpu": "RTX-4090", "count": "2"},
            "No single other choice of response length, LoRA or number of GPUs is enough.",
        ),
    ],
)
def test_what_makes_it_fit_is_looked_up(open_page, chosen, ways):
    chosen = {**FIRST, "gpu": "B200", **chosen}
    lines = shown(open_page(f"index.html?{query(chosen)}"))["lines"]
    assert lines["change"] == f"To make it fit: {ways}"
    gpus = f"--gpus 2x{chosen['gpu']} --response {chosen['response']}"
    plan = f"To find settings: verl-resources plan {chosen['model']} {gpus}"
    assert lines["plan"] == plan + (" --lora 32" if chosen["lora"] == "32" else "")
    assert answered(chosen).verdict != "fits"


LABEL = {
    "model": "Model", "count": "GPUs", "gpu": "GPU type", "lora": "Trained", "response": "Longest response",
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_each_field_changes_the_answer_and_the_address(open_page, name):
    page = open_page("index.html?theirs=1#what")
    page.get_by_role("combobox", name=LABEL[name], exact=True).select_option(OTHERS[name])
    settle(page)
    chosen = {**FIRST, name: OTHERS[name]}
    check(shown(page), chosen)
    before, _, fragment = page.url.partition("#")
    assert fragment == "what"
    assert before.partition("?")[2].replace("%2F", "/") == f"theirs=1&{query({**chosen})}"
    assert page.evaluate("history.length") == 2, "no entry of its own"


def test_an_address_opens_the_form_as_it_was_left(open_page):
    check(shown(open_page(f"index.html?{query(OTHERS)}")), OTHERS)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("if-gpu=H9000", "if-gpu=H9000"),
        ("if-count=9&if-response=", "if-count=9, if-response="),
        ("if-model=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "if-model=<img src=x onerror=alert(1)>"),
        (f"if-gpu={'x' * 5000}", f"if-gpu={'x' * 80}"),
        ("if-lora=constructor&if-response=__proto__", "if-lora=constructor, if-response=__proto__"),
    ],
    ids=["unknown", "several", "markup", "long", "names of JavaScript"],
)
def test_what_the_address_asks_in_vain_is_said(open_page, asked, said):
    page = open_page(f"index.html?{asked}&if-lora=32")
    problem = f"The address asks for what the form does not offer: {said}"
    found = shown(page)
    assert found["lines"]["verdict"].startswith(problem)
    assert page.locator(".verl-what-if img").count() == 0
    choose(page, count="32", lora="0")
    check(shown(page), {**FIRST, "count": "32"})


def test_case_does_not_matter_in_the_address(open_page):
    check(shown(open_page("index.html?if-gpu=b200&if-lora=32")), {**FIRST, "gpu": "B200", "lora": "32"})


def test_a_combination_without_an_estimate_says_why(open_page):
    page = open_page("outside.html")
    choose(page, model="Qwen/Qwen2.5-0.5B")
    found = shown(page)
    assert found["badge"] == "verl-verdict verl-verdict-unknown"
    assert found["lines"]["verdict"].startswith("No estimate. ")
    assert "does not divide the model's 14 attention heads" in found["lines"]["verdict"]
    assert "verl-resources plan Qwen/Qwen2.5-0.5B" in found["lines"]["plan"]
    assert found["command"] == ""
    assert not page.get_by_role("button").is_visible()
    choose(page, model="Qwen/Qwen2.5-7B")
    assert "model.path=Qwen/Qwen2.5-7B" in shown(page)["command"]
    assert page.get_by_role("button").is_visible()


def test_a_file_that_is_missing_is_said_and_asked_for_again(site, folder):
    served = site(folder, STRICT)
    page = served.open()
    page.route("**/verl-what-if-*.js", lambda route: route.abort())
    choose(page, count="32")
    (text,) = page.locator("[role=status]").all_inner_texts()
    assert text.strip() == (
        "The answers for Qwen2.5-7B could not be loaded. "
        "Run verl-resources plan Qwen/Qwen2.5-7B --gpus 32xH100 --response 1024 instead."
    )
    assert page.locator(".verl-if-answer > :visible").count() == 1, "no answer of another question"
    page.unroute("**/verl-what-if-*.js")
    choose(page, lora="32")
    check(shown(page), {**FIRST, "count": "32", "lora": "32"})
    assert [problem for problem in served.problems if "ERR_FAILED" not in problem] == []
    served.problems.clear()


def test_the_keyboard_is_enough(open_page):
    page = open_page()
    page.locator("select[name=model]").focus()
    order = []
    for _number in FIRST:
        order.append(page.evaluate("document.activeElement.name"))
        page.keyboard.press("Tab")
    assert order == ["model", "count", "gpu", "lora", "response"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowUp")
    settle(page)
    check(shown(page), {**FIRST, "response": "512"})
    for name in ("a", "button", "a", "summary", "summary"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.localName") == name
    page.keyboard.press("Enter")
    assert page.locator(".verl-what-if pre").is_visible()
    choose(page, count="32")
    assert page.locator(".verl-what-if pre").is_visible(), "it stays open"


def test_the_command_is_copied(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Copy the command")
    button.click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == shown(page)["command"]
    assert shown(page)["command"].startswith("python3 -m verl.trainer.main_ppo \\\n")
    button.wait_for()


def test_it_has_names_for_those_who_do_not_see_it(open_page):
    page = open_page()
    group = page.get_by_role("group", name="Will it fit?")
    assert [group.get_by_role("combobox", name=label, exact=True).count() for label in LABEL.values()] == [
        1
    ] * 5
    (status,) = page.get_by_role("status").all_text_contents()
    assert status == (
        "Fits. Estimated for GRPO. The whole range is within the GPU's memory, with 18.3 GiB to spare."
    ), "no more than that"
    assert page.locator(".verl-what-if [style]").count() == 0


def test_two_forms_on_a_page_are_apart(open_page):
    page = open_page(f"two.html?{query(OTHERS)}")
    check(shown(page), OTHERS)
    second = page.locator("form.verl-what-if").nth(1)
    assert shown(page, "form.verl-what-if >> nth=1")["chosen"]["model"] == "Qwen/Qwen2.5-7B"
    second.locator("select[name=model]").select_option("Qwen/Qwen2.5-0.5B")
    settle(page)
    assert shown(page, "form.verl-what-if >> nth=1")["lines"]["verdict"].startswith("No estimate.")
    check(shown(page), OTHERS)
    assert page.url.endswith(query(OTHERS)), "the address is that of the first"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))


QUESTION = "Qwen2.5-7B on 8 × H100, all parameters, responses of up to 1,024 tokens"


def test_without_javascript_are_question_answer_and_what_to_do(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".verl-what-if :is(select, button)").locator("visible=true").count() == 0
    text = page.locator("form.verl-what-if").inner_text()
    assert "run verl-resources plan Qwen/Qwen2.5-7B --gpus 8xH100" in text
    assert QUESTION in text
    assert "Fits" in text
    page.locator("summary", has_text="Command").click()
    assert page.locator(".verl-what-if pre").is_visible()


def test_print_has_the_question_in_words(open_page):
    page = open_page()
    page.emulate_media(media="print")
    text = page.locator("form.verl-what-if").inner_text()
    assert QUESTION in text
    assert "JavaScript" not in text
    assert page.locator(".verl-what-if :is(select, button, summary)").locator("visible=true").count() == 0
    page.emulate_media(media="screen")
    choose(page, count="32")
    page.emulate_media(media="print")
    assert "Qwen2.5-7B on 32 × H100" in page.locator("form.verl-what-if").inner_text()


def test_a_page_without_a_form_loads_nothing_of_it(open_page):
    assert open_page("none.html").locator("script[src*=verl-what-if]").count() == 0


def test_it_works_from_a_folder(browser, folder):
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((folder / "index.html").as_uri())
    choose(page, count="32")
    check(shown(page), {**FIRST, "count": "32"})
    assert problems == []


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
@pytest.mark.parametrize("width", [360, 390, 800, 1440])
def test_it_is_no_wider_than_its_place(site, usual, width, direction):
    """Not even with a model whose name has 60 characters, and with everything open."""
    page = site(usual).open(viewport={"width": width, "height": 800})
    page.evaluate("(direction) => { document.dir = direction; }", direction)
    page.evaluate("document.querySelector('option').label = 'x'.repeat(60)")
    choose(page, model="Qwen/Qwen2.5-0.5B", gpu="RTX-4090")
    for summary in page.locator(".verl-what-if summary").all():
        summary.click()
    wide = """(form) => {
      const {left, right} = form.parentElement.getBoundingClientRect();
      const inside = [form, ...form.querySelectorAll("*:not(option, .verl-unseen)")];
      const boxes = inside.map((one) => [one.className || one.tagName, one.getBoundingClientRect()]);
      return boxes.filter(([, box]) => box.width && (box.right > right + 1 || box.left < left - 1)).map(([name]) => name);
    }"""
    assert page.locator("form.verl-what-if").evaluate(wide) == []
    choose(page, model="Qwen/Qwen2.5-72B-Instruct")
    assert page.locator("form.verl-what-if").evaluate(wide) == []


#: The sum of all layout shifts so far.
SHIFTS = """() => new Promise((resolve) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) sum += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(sum), 300);
})"""
#: Answers with few lines and with many.
ASKED = ("", query(OTHERS), query({**FIRST, "model": OTHERS["model"], "count": "2"}), "if-gpu=H9000")


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_moves_when_an_answer_comes(site, usual, width):
    served = site(usual)
    for asked in ASKED:
        page = served.open(f"index.html?{asked}", viewport={"width": width, "height": 900})
        settle(page)
        assert page.evaluate(SHIFTS) <= 0.02, asked
