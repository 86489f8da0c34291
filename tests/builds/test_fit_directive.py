"""``.. verl-fit::`` in real builds."""

from __future__ import annotations

import re

CELLS = "table.verl-fit tbody :is(th, td)"
RAN = ".. verl-fit::\n   :gpu: H100\n   :task: GRPO-LoRA\n   :sizes: 3B\n   :gpus: 1 2\n"
RUN = "run-qwen2-5-3b-grpo-lora-1xh100"


def test_a_cell_that_ran_links_the_row_of_the_run(project):
    project.page(".. verl-runs:: 3B\n", "rows.rst")
    project.page(f"{RAN}")
    build = project.build()
    assert build.warnings == []
    cells = [cell.a for cell in build.soup().select(CELLS) if cell.a]
    assert [link.get_text() for link in cells] == ["ran", "ran on 1×H100"]
    assert {link["href"] for link in cells} == {f"rows.html#{RUN}"}
    assert build.soup("rows.html").find(id=RUN)


def test_a_row_that_appears_or_goes_changes_the_links_to_it(project):
    def cell():
        return project.build().soup().select(CELLS)[1]

    project.page(RAN)
    assert cell().get_text() == "ran (qwen2-5-3b-grpo-lora-1xh100)"
    project.page(".. verl-runs:: 3B\n", "rows.rst")
    build = project.build()
    assert build.read == {"rows"}
    assert build.soup().select(CELLS)[1].a["href"] == f"rows.html#{RUN}"
    (project.path / "rows.rst").unlink()
    assert cell().get_text() == "ran (qwen2-5-3b-grpo-lora-1xh100)"


SIZE = r"[\d,.]+ GiB"
LAYOUT = r"(, (Megatron( (TP|PP|CP|EP) \d+)*|FSDP2))?"
RUN_ON = r"( on \d+×[\w-]+)?( \(.+\))?"
WORDS = {
    "ran": RUN_ON,
    "reported": RUN_ON,
    "fits": rf"( on \d+×H100,)? {SIZE} left{LAYOUT}( †)?",
    "borderline": rf" ({SIZE} short|up to [\d,]+ tokens){LAYOUT}",
    "no": rf" {SIZE} short",
    "unknown": "",
}


def test_each_cell_says_in_words_what_it_is(project, table_rows):
    soup = project.page(".. verl-fit::\n   :gpu: H100\n").build().soup()
    headings, *rows = table_rows(soup, "verl-fit")
    assert headings[0] == "Size class (model)"
    counts = [1, 2, 4, 8, 16, 32, 64, 128]
    assert headings[1:] == [f"{count} GPU{'s' if count > 1 else ''}" for count in counts]
    assert [row[0].split()[0] for row in rows][:4] == ["0.5B", "1.5B", "3B", "7B"]
    used = set()
    for row in rows:
        for cell in row[1:]:
            word = re.match(r"\w+", cell)[0]
            assert re.fullmatch(word + WORDS[word], cell), cell
            used.add(word)
    assert {"ran", "fits", "no"} <= used
    legend = [item.get_text().split(":")[0] for item in soup.select("ul.verl-legend li")]
    assert set(legend) == {"†", *(word.capitalize() for word in used)}
    marks = {mark.get_text(): mark["class"][1] for mark in soup.select(f"{CELLS} .verl-verdict")}
    assert marks["no"] == "verl-verdict-does-not-fit"
    assert marks["fits"] == "verl-verdict-fits"
    assert "algorithm.adv_estimator: grpo" in soup.select_one("pre").get_text()


def test_an_own_setting_counts_and_is_listed(project, table_rows):
    text = ".. verl-fit::\n   :gpu: H100\n   :sizes: 3B\n   :gpus: 8\n\n   actor_rollout_ref:\n     rollout: {gpu_memory_utilization: 0.9}\n"
    soup = project.page(text).build().soup()
    assert "actor_rollout_ref.rollout.gpu_memory_utilization: 0.9" in soup.select_one("pre").get_text()
    without = project.page(text.partition("\n\n")[0] + "\n").build().soup()
    assert table_rows(soup, "verl-fit") != table_rows(without, "verl-fit")
