"""Scripts and logs of two sizes, for the test of doubling."""

from __future__ import annotations

from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.resolve import resolve
from sphinx_verl_resources.intake.log import read_log
from sphinx_verl_resources.settings.read import read_settings

TRAINS = "python3 -m verl.trainer.main_ppo "
KINDS = {}


# Scripts.
def script(size, text, before="", after=""):
    def make(n):
        body = before + "".join(text.format(i) for i in range(n)) + after
        return lambda: read_settings(body, "run.sh")

    return size, make


SCRIPTS = {
    "words": script(1000, "a.b{}=1 ", TRAINS),
    "words_continued": script(1000, "a.b{}=1 \\\n", TRAINS),
    "words_alike": script(1000, "a.b=1 ", TRAINS),
    "words_nested": script(1000, "a.b{0}.c=1 a.b{0}.d=1 ", TRAINS),
    "words_below": script(1000, "a.b{0}=1 a.b{0}.d=1 ", TRAINS),
    "words_unknown": script(1000, "a.b{0}=$X{0} ", TRAINS),
    "words_with_braces": script(500, "a.b{0}={{1,2}} ", TRAINS),
    "lists": script(1000, "[1,2],", TRAINS + "a.b=[", "]"),
    "brackets": script(1000, "[", TRAINS + "a.b="),
    "assignments": script(1000, "A{}=1\n", "", TRAINS + "a.b=$A1"),
    "assignments_chained": script(1000, "A=$A{}\n", "", TRAINS + "a.b=$A"),
    "assignments_appended": script(1000, "A+=x{}\n", "", TRAINS + "a.b=$A"),
    "assignments_doubled": script(1000, "A=$A$A\n", "A=x\n", TRAINS + "a.b=$A"),
    "arrays": script(1000, "A+=(a.b{}=1)\n", "", TRAINS + '"${A[@]}"'),
    "array_items": script(1000, "a.b{}=1\n", "A=(", ")\n" + TRAINS + '"${A[@]}"'),
    "conditions": script(300, 'if [ "$X" = 1 ]; then A{0}=1; fi\n', "", TRAINS + "a.b=$A1"),
    "conditions_open": script(300, 'if [ "$X{0}" = 1 ]; then A=$A{0}; else A=1; fi\n', "", TRAINS + "a.b=$A"),
    "loops": script(300, "for x in a b; do A=$x; done\n", "", TRAINS + "a.b=$A"),
    "loop_words": script(500, "a{} ", "for x in ", "; do A=$x; done\n" + TRAINS + "a.b=$A"),
    "functions": script(300, "f{}() {{ A=1; }}\n", "", "f1\n" + TRAINS + "a.b=$A"),
    "calls": script(300, "f {0}\n", "f() { A=$1; }\n", TRAINS + "a.b=$A"),
    "calls_of_calls": script(20, "f{0}() {{ f{0}x; f{0}x; }}\n", "", "f1\n" + TRAINS + "a.b=$A"),
    "cases_of_a_word": script(300, "a{}) A=1;;\n", "case $X in\n", "esac\n" + TRAINS + "a.b=$A"),
    "pipes": script(1000, "echo {} | cat\n", "", TRAINS + "a.b=1"),
    "chains": script(2000, "true && ", "", TRAINS + "a.b=1"),
    "comments": script(2000, "# {}\n", "", TRAINS + "a.b=1"),
    "documents": script(600, "cat <<E{0}\na\nE{0}\n", "", TRAINS + "a.b=1"),
    "documents_open": script(1000, "cat <<E{0}\n", "", TRAINS + "a.b=1"),
    "quotes_open": script(2000, "'{0}' \" ", TRAINS),
    "substitutions_of_commands": script(300, "A{0}=$(a b)\n", "", TRAINS + "a.b=$A1"),
    "commands_open": script(1000, "$(", TRAINS),
    "braces_open": script(1000, "${{", TRAINS),
    "backquotes": script(1001, "`", TRAINS),
    "calculations": script(500, "A=$((A+{0}))\n", "", TRAINS + "a.b=$A"),
    "terms": script(500, "+{0}", TRAINS + "a.b=$((1", "))"),
    "negations": script(500, "! ", "", TRAINS + "a.b=1"),
    "tests": script(300, "[[ $X == {0} ]] || ", "", TRAINS + "a.b=1"),
    "expressions": script(300, "! ", "if [ ", "a = a ]; then A=1; fi\n" + TRAINS + "a.b=$A"),
    "arguments_in_text": script(300, "bash -c 'python3 -m verl.trainer.main_ppo a.b={0}'\n"),
    "trainings": script(300, TRAINS + "a.b={0}\n"),
    "sourced": script(500, "source a{0}.sh\n", "", TRAINS + "a.b=1"),
    "yaml_keys": script(1000, "a.b{0}: 1\n"),
    "yaml_keys_wrong": script(1000, "a b{0}: 1\n", "a: 1\n"),
    "yaml_items": script(1000, "- a{0}\n", "a:\n"),
    "overrides": script(1000, "a.b{0}=1\n"),
    "blanks": script(5000, " \\\n", TRAINS),
    "blank_lines": script(5000, "\t\n", "", TRAINS),
    "parentheses": script(500, "(", "", ""),
    "shift": script(300, "shift\n", "set -- " + "a " * 100 + "\n", TRAINS + "a.b=$1"),
    "patterns": script(
        500, "a*", "case aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa in ", "b) A=1;; esac\n" + TRAINS + "a.b=$A"
    ),
    "defaults": script(300, "A{0}=${{B{0}:-1}}\n", "", TRAINS + "a.b=$A1"),
    "exports": script(500, "export A{0}=1\n", "", TRAINS + "a.b=$A1"),
}
KINDS.update({f"script_{name}": item for name, item in SCRIPTS.items()})


# Logs.
def log(size, text, before="", after=""):
    def make(n):
        body = (before + "".join(text.format(i) for i in range(n)) + after + "\n").encode()
        return lambda: read_log([body[at : at + (1 << 20)] for at in range(0, len(body), 1 << 20)], "run.log")

    return size, make


STEPS = "step:{0} - perf/max_memory_allocated_gb:71.3 - perf/time_per_step:60.5\n"
CONFIG = "{{'actor_rollout_ref': {{'actor': {{'strategy': 'fsdp'}}}}}}"
LOGS = {
    "steps": log(500, STEPS),
    "steps_of_workers": log(500, "(W pid={0}) " + STEPS),
    "braces": log(4000, "{{", "{'data': {'a': "),
    "braces_with_commas": log(4000, "{{, ", "{'data': {'a': "),
    "braces_closed": log(2000, "{{'a': 1}}, ", "{'data': {'b': ["),
    "brackets": log(2000, "[", "{'data': {'a': "),
    "dicts": log(1000, "'a{0}': {{'b': 1}}, ", "{'data': {'a': 1, 'b': {'c': 1}, ", "}}"),
    "items": log(2000, "{0}, ", "{'data': {'a': [", "]}"),
    "items_cut": log(2000, "'a{0}': 1, ", "{'data': {'a': 1, 'b': {'c': 1}, "),
    "words": log(2000, "<a b{0}>, ", "{'data': {'a': [", "]}"),
    "words_open": log(2000, "a ", "{'data': {'a': [", "]}"),
    "words_in_brackets": log(2000, "a(", "{'data': {'a': [", "]}"),
    "quotes": log(2000, "'", "{'data': {'a': [", "]}"),
    "quotes_open": log(2000, "'a\\\\", "{'data': {'a': ["),
    "config_lines": log(2000, " 'a{0}': 1,\n", "{'data': {'b': 1},\n"),
    "config_deep": log(2000, " 'a{0}': {{\n", "{'data': {'b': 1},\n"),
    "configs": log(300, "(W pid=1) " + CONFIG + "\n"),
    "configs_of_workers": log(300, "(W pid={0}) " + CONFIG + "\n"),
    "configs_open_of_workers": log(1000, "(W pid={0}) {{'data': {{'a': {{'b': 1,\n"),
    "configs_and_steps": log(300, "(W pid={0}) " + CONFIG + "\n(W pid={0}) " + STEPS),
    "configs_begun": log(1000, "(W pid={0}) {{'data': {{'a': {{'b': 1,\n(W pid={0}) 'c': 1,\n"),
    "frames": log(1000, '(W pid={0}) File "/verl/a.py", line {0}, in update_policy\n'),
    "frames_of_one": log(1000, '(W pid=1) File "/verl/a.py", line {0}, in update_policy\n'),
    "failures": log(
        300, "(W pid={0}) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    ),
    "failures_with_frames": log(
        1200,
        '(W pid={0}) File "/verl/a.py", line {0}, in backward\n'
        "(W pid={0}) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    ),
    "processes": log(300, "Process {0} has 2.00 GiB memory in use. ", "CUDA out of memory. "),
    "numbers": log(5000, "1", "Tried to allocate ", "GiB out of memory. CUDA out of memory. "),
    "memory_words": log(2000, "Memory on the node was ", "emory "),
    "killed_words": log(2000, "Sleep mode freed ", "emory "),
    "gpus": log(1000, "NVIDIA H100 "),
    "gpus_pipes": log(1000, "|  1  NVIDIA ", "|  "),
    "versions": log(800, "torch 2.{0}.0 "),
    "version_words": log(1000, "Initializing a V1 LLM engine (", "", ""),
    "models": log(900, "LLM engine (", "", "model='"),
    "commands": log(300, "+ python3 -m verl.trainer.main_ppo a.b={0}\n"),
    "command_words": log(1200, "a.b{0}=1 ", "+ python3 -m verl.trainer.main_ppo "),
    "commands_of_pluses": log(3000, "+", "", " verl.trainer.main"),
    "commands_of_minuses": log(1200, "+ -m verl.", "", "verl.trainer.main"),
    "hydra": log(1000, "'a.b{0}=1', ", "Error executing job with overrides: [", "]"),
    "colours": log(2000, "\x1b[", "step:1 - "),
    "titles": log(2000, "\x1b]", "step:1 - "),
    "returns": log(2000, "step:{0} - a\r"),
    "figures": log(1000, " - perf/max_memory_allocated_gb:{0}", "step:1"),
    "figures_unread": log(1000, " - perf/max_memory_allocated_gb:x", "step:1"),
    "figure_digits": log(5000, "1", "step:1 - perf/max_memory_allocated_gb:"),
    "workers_open": log(2000, "(", "", " step:1 - a:1"),
    "repeated": log(2000, "[repeated ", "step:1 - a:1"),
    "long_line": log(20000, "step:1 - a ", "", ""),
    "zeros": log(5000, "\0", "step:1 - a:1"),
}
KINDS.update({f"log_{name}": item for name, item in LOGS.items()})


def log_braces_then_commas(n):
    text = ("{'data': {'a': " + "{" * n + "," * n + "\n").encode()
    return lambda: read_log([text], "run.log")


KINDS["log_braces_then_commas"] = 6000, log_braces_then_commas


def estimate_unread_keys(n):
    registries = read_data([]).registries
    config = {f"data.k{i}": i for i in range(n)}
    request = Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100")
    return lambda: resolve(request, registries)


KINDS["estimate_unread_keys"] = 1000, estimate_unread_keys
