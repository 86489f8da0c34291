"""The output of directives of the memory analysis; the snippets test their doctrees."""

from __future__ import annotations

import pytest


def test_remarks_stand_once_on_a_page(project):
    build = project.page(
        ".. verl-memory:: 3B\n\n.. verl-memory:: 8B\n\n.. verl-analysis:: monitoring\n"
    ).build()
    soup = build.soup()
    items = [item.get_text() for item in soup.select(".verl-notes li")]
    assert len(items) == len(set(items)) == 15
    lists = soup.select("ol.verl-notes")
    assert [(len(item.select("li")), item.get("start")) for item in lists] == [(13, None), (2, "14")]
    numbers = {
        target["id"]: str(number) for number, target in enumerate(soup.select(".verl-notes li [id]"), 1)
    }
    marks = soup.select("a.verl-mark")
    assert len(marks) == 41
    for mark in marks:
        assert mark.get_text() == f"[{numbers[mark['href'].removeprefix('#')]}]"


def marks_and_items(soup) -> tuple[list[str], list[str]]:
    return (
        [f"{mark.get_text()}{mark['href']}" for mark in soup.select("a.verl-mark")],
        [target["id"] for target in soup.select(".verl-notes li [id]")],
    )


def test_remarks_of_nested_documents_stand_once(project):
    project.conf.update(extensions=["myst_parser"])
    block = "```{eval-rst}\n.. verl-memory:: 8B\n   :show: table\n   :caption: C\n```\n\n"
    build = project.page("```{verl-memory} 3B\n:show: table\n```\n\n" + block * 2, "index.md").build()
    items = marks_and_items(build.soup())[1]
    assert len(items) == len(set(items)) == 13


@pytest.mark.parametrize(("models", "said"), [("3B 32B", True), ("3B 8B", False)])
def test_a_summary_says_that_rows_do_not_compare(project, models, said):
    soup = project.page(f".. verl-memory-summary:: {models}").build().soup()
    assert ("not directly comparable" in soup.get_text()) is said


def test_remarks_link_verl(project):
    project.conf["verl_resources_script_url"] = "https://example.org/{ref}/{path}"
    soup = project.page(".. verl-memory:: 3B").build().soup()
    links = [link["href"] for link in soup.select(".verl-notes a[href^=http]")]
    assert (
        "https://example.org/1dda039b9c6311889a9c9a26040677e1254814f9/"
        "verl/workers/engine/fsdp/transformer_impl.py#L239-L262"
    ) in links
    assert "https://arxiv.org/abs/2305.13245" in links


def test_one_sequence_is_not_many(project):
    soup = project.page(".. verl-memory:: 3B\n   :batch-size: 1\n   :show: table\n").build().soup()
    assert "3B: memory for 1 sequence of 2048 tokens" in soup.caption.get_text()


def test_a_label_reaches_the_table(project):
    text = ":ref:`here`\n\n.. verl-memory:: 3B\n   :name: here\n   :caption: Three\n"
    build = project.page(text).build(numfig=True)
    assert build.warnings == []
    link = build.soup().select_one("p a.reference.internal")
    assert link.get_text() == "Three"
    assert build.soup().select_one(f"table{link['href']} caption")


def test_what_is_copied_is_what_verl_takes(project):
    soup = project.page(".. verl-config:: 8B").build().soup()
    yaml_block, command = (block.get_text() for block in soup.select("div.highlight pre"))
    import yaml

    settings = yaml.safe_load(yaml_block)["actor_rollout_ref"]
    assert settings["rollout"] == {"gpu_memory_utilization": 0.6, "tensor_model_parallel_size": 2}
    assert "    actor_rollout_ref.actor.use_dynamic_bsz=True \\\n" in command
    assert command.startswith("python3 -m verl.trainer.main_ppo \\\n")
