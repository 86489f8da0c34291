"""Misspelt keys and wrong values, which ``check`` used to accept: one message each, at its place.

A build reports the same, as does ``estimate``, with warnings about keys.
"""

from __future__ import annotations

import pytest

ID = "qwen2-7b-grpo-2xh800"
RUN = f"""\
# yaml-language-server: $schema=../schema/run.json
id: {ID}
size: 7B
tag: MIN
model: Qwen/Qwen2-7B-Instruct
task: GRPO
gpus: {{count: 2, type: H800, nodes: 1}}
train: fsdp
infer: {{engine: vllm, version: "0.8.2"}}
added: 2025-04-11
versions: {{verl: "0.9.0"}}
settings:
  data.train_batch_size: 1024
  data.max_response_length: 1024
  data.shuffle: true
  actor_rollout_ref.model.use_remove_padding: true
  actor_rollout_ref.actor.ppo_mini_batch_size: 256
  actor_rollout_ref.actor.use_kl_loss: true
  actor_rollout_ref.actor.fsdp_config.param_offload: true
  actor_rollout_ref.rollout.n: 5
  actor_rollout_ref.rollout.tensor_model_parallel_size: 2
  actor_rollout_ref.rollout.gpu_memory_utilization: 0.6
  critic.fsdp.param_offload: true
evidence:
  - {{kind: log, url: "https://example.org/log"}}
"""
ROLLOUT = "actor_rollout_ref.rollout"
RECIPE = "remove it, or add it to config_keys.yaml if it belongs to your own recipe"
MISTAKES = {
    "a key": ("data.max_response_length", "data.max_respone_length", "14:3: ERROR: data.max_respone_length: verl has no such key; did you mean 'data.max_response_length'? [verl.unknown_key]"),
    "a key with three letters": ("use_remove_padding", "use_remove_paddding", "16:3: ERROR: actor_rollout_ref.model.use_remove_paddding: verl has no such key; did you mean 'actor_rollout_ref.model.use_remove_padding'? [verl.unknown_key]"),
    "a key with a letter less": ("config.param_offload", "config.param_ofload", "19:3: ERROR: actor_rollout_ref.actor.fsdp_config.param_ofload: verl has no such key; did you mean 'actor_rollout_ref.actor.fsdp_config.param_offload'? [verl.unknown_key]"),
    "a section": ("actor_rollout_ref.rollout.n", "actor_rollout_ref.rollouts.n", f"20:3: ERROR: actor_rollout_ref.rollouts.n: verl has no such key; did you mean '{ROLLOUT}.n'? [verl.unknown_key]"),
    "a key without its section": ("data.train_batch_size", "train_batch_size", f"13:3: WARNING: train_batch_size: verl has no such key; did you mean 'data.train_batch_size'? If not, {RECIPE} [verl.config_key]"),
    "a key of nobody": ("data.shuffle", "data.bananas", f"15:3: WARNING: data.bananas: verl has no such key; {RECIPE} [verl.config_key]"),
    "a key that was removed": ("data.shuffle: true", f"{ROLLOUT}.chat_scheduler: null", f"15:3: WARNING: {ROLLOUT}.chat_scheduler: verl v0.9.0 has no such key; v0.4.0 was the last release with it; remove it [verl.config_key]"),
    "a key with another name now": ("critic.fsdp.param", "critic.model.fsdp_config.param", "23:3: WARNING: critic.model.fsdp_config.param_offload: verl v0.9.0 has another name for this key; write 'critic.fsdp.param_offload' [verl.config_key]"),
    "a key that came later": ('verl: "0.9.0"}\nsettings:\n', 'verl: "0.7.0"}\nsettings:\n  actor_rollout_ref.actor.pad_to_length: false\n', "13:3: WARNING: actor_rollout_ref.actor.pad_to_length: verl v0.7.0 has no such key; v0.9.0 is the first release with it; remove it, or correct the version [verl.config_key]"),
    "the size class": ("size: 7B", "size: 14B", "3:7: ERROR: Qwen/Qwen2-7B-Instruct has 7.6 billion parameters, but the run's size class is 14B; write 7B [verl.wrong_size]"),
    "the GPU": ("type: H800", "type: NVIDIA H800 80GB", "7:24: ERROR: gpus.type: unknown GPU 'NVIDIA H800 80GB'; did you mean 'NVIDIA H800'? If not, add it to gpus.yaml [verl.unknown_gpu]"),
    "the backend": ("train: fsdp", "train: deepspeed", "8:8: ERROR: train: unknown value 'deepspeed'; allowed: fsdp, fsdp2, fsdp_turbo, megatron, megatron_lite, mindspeed, automodel, veomni, torchtitan [verl.unknown_value]"),
    "the type of a value": ("rollout.n: 5", "rollout.n: five", f"20:3: ERROR: {ROLLOUT}.n: expected a whole number, got 'five' [verl.impossible_settings]"),
    "the type of a value that decides no memory": ("shuffle: true", "shuffle: often", "15:17: WARNING: data.shuffle: expected true or false, got 'often'; correct it [verl.wrong_type]"),
    "a mini-batch above the batch": ("batch_size: 256", "batch_size: 2560", "17:48: ERROR: actor_rollout_ref.actor.ppo_mini_batch_size: the mini-batch of 2,560 is larger than data.train_batch_size, 1,024: verl rejects it; correct one of the two [verl.wrong_value]"),
}  # fmt: skip


def test_the_run_is_right_as_it_is(checked):
    checked.write(f"runs/{ID}.yaml", RUN)
    assert checked.problems() == []


@pytest.mark.parametrize("name", MISTAKES)
def test_one_message_at_its_place(checked, name):
    right, wrong, message = MISTAKES[name]
    assert RUN.count(right) == 1
    checked.write(f"runs/{ID}.yaml", RUN.replace(right, wrong))
    assert checked.problems() == [f"data/runs/{ID}.yaml:{message}"]


@pytest.mark.parametrize(
    "settings",
    [
        "{actor_rollout_ref.rollout.engine_kwargs.vllm.any_option: 1}",
        "{actor_rollout_ref.actor.megatron.override_transformer_config.moe_permute_fusion: true}",
        "{actor_rollout_ref.model.override_config.max_position_embeddings: 32768}",
        "{rollout.nnodes: 1, rollout.n_gpus_per_node: 8, async_training.require_batches: 4}",
        "{model_engine: dp, trainer.default_local_dir: /data, trainer.resume_from_path: /data/a}",
    ],
)
def test_keys_that_verl_takes_though_no_default_names_them(checked, settings):
    run = RUN.replace("evidence:", "other:").partition("settings:")[0]
    checked.write(f"runs/{ID}.yaml", f"{run}settings: {settings}\n" + RUN[RUN.index("evidence:") :])
    assert checked.problems() == []


def test_with_a_dynamic_batch_size_verl_takes_a_mini_batch_above_the_batch(checked):
    dynamic = "batch_size: 2560\n  actor_rollout_ref.actor.use_dynamic_bsz: true"
    checked.write(f"runs/{ID}.yaml", RUN.replace("batch_size: 256", dynamic))
    assert [line for line in checked.problems() if "ERROR" in line] == []


def test_names_of_today_are_taken_for_those_of_an_older_release(checked):
    checked.write(f"runs/{ID}.yaml", RUN.replace('verl: "0.9.0"', 'verl: "0.6.0"'))
    assert "critic.fsdp.param_offload" in RUN
    assert checked.problems() == []


def test_keys_of_a_recipe_can_be_declared(checked):
    checked.write(f"runs/{ID}.yaml", RUN.replace("data.shuffle", "data.bananas"))
    checked.write(
        "config_keys.yaml",
        "# yaml-language-server: $schema=schema/config_keys.json\nconfig_keys:\n"
        "  - {name: data.bananas, group: scale, type: bool, default: false, phases: [], effect: None., status: active}\n",
    )
    assert checked.problems() == []
