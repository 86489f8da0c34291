"""``.. verl-fit::`` in real builds."""

from __future__ import annotations

import re


def test_a_measured_cell_links_the_row_of_the_run(project):
    project.page(".. verl-runs:: 7B\n", "rows.rst")
    project.page(".. verl-fit::\n   :gpu: H100\n   :task: GRPO-LoRA\n   :sizes: 7B 14B\n   :gpus: 1 2 8\n")
    build = project.build()
    assert build.warnings == []
    cells = build.soup().select("table.verl-fit tbody :is(th, td)")
    link = cells[1].a
    assert (link.get_text(), link["href"]) == ("measured", "rows.html#run-qwen2-5-7b-grpo-lora-1xh100")
    assert build.soup("rows.html").find(id="run-qwen2-5-7b-grpo-lora-1xh100")
    # no page has a row of this one
    assert cells[6].get_text() == "measured (qwen2-5-14b-grpo-lora-2xh100)"


def test_a_row_that_appears_or_goes_changes_the_links_to_it(project):
    project.page(".. verl-fit::\n   :gpu: H100\n   :task: GRPO-LoRA\n   :sizes: 7B\n   :gpus: 1\n")
    assert (
        "measured (qwen2" in project.build().soup().select("table.verl-fit tbody :is(th, td)")[1].get_text()
    )
    project.page(".. verl-runs:: 7B\n", "rows.rst")
    build = project.build()
    assert build.read == {"rows"}
    assert build.soup().select("table.verl-fit tbody :is(th, td)")[1].a["href"].startswith("rows.html#run-")
    (project.path / "rows.rst").unlink()
    assert (
        "measured (qwen2" in project.build().soup().select("table.verl-fit tbody :is(th, td)")[1].get_text()
    )


def test_each_cell_says_in_words_what_it_is(project, table_rows):
    build = project.page(".. verl-fit::\n   :gpu: H100\n").build()
    headings, *rows = table_rows(build.soup(), "verl-fit")
    assert headings[0] == "Size class (computed for)"
    assert headings[1:] == [
        "1 GPU",
        "2 GPUs",
        "4 GPUs",
        "8 GPUs",
        "16 GPUs",
        "32 GPUs",
        "64 GPUs",
        "128 GPUs",
    ]
    assert [row[0].split()[0] for row in rows][:4] == ["0.5B", "1.5B", "3B", "7B"]
    words = r"measured( \(.+\))?|(computed|borderline|depends on the lengths): [\d,.]+ GiB(, Megatron( (TP|PP|CP|EP) \d+)*|, FSDP2)?|does not fit: [\d,.]+ GiB|unknown"
    for row in rows:
        for cell in row[1:]:
            assert re.fullmatch(words, cell), cell
    legend = [item.get_text().split(":")[0] for item in build.soup().select("ul.verl-legend li")]
    used = {re.split(r":| \(", cell)[0].capitalize() for row in rows for cell in row[1:]}
    assert set(legend) == used
    assert (
        "actor_rollout_ref.actor.fsdp_config.param_offload: true" in build.soup().select_one("pre").get_text()
    )


def test_an_own_setting_counts_and_is_listed(project, table_rows):
    text = ".. verl-fit::\n   :gpu: H100\n   :sizes: 7B\n   :gpus: 8\n\n   actor_rollout_ref:\n     rollout: {gpu_memory_utilization: 0.9}\n"
    soup = project.page(text).build().soup()
    assert "actor_rollout_ref.rollout.gpu_memory_utilization: 0.9" in soup.select_one("pre").get_text()
    without = project.page(text.partition("\n\n")[0] + "\n").build().soup()
    assert table_rows(soup, "verl-fit") != table_rows(without, "verl-fit")
