"""Determine the phase of a traceback from the names of its functions.

The functions belong to verl's old workers (v0.2 to v0.7.1) and engine workers, vLLM, SGLang, Megatron and
PyTorch. In verl 1dda039b9 see verl/workers/engine_workers.py, verl/workers/engine/base.py and
verl/trainer/ppo/ray_trainer.py. In v0.7.1 see verl/workers/fsdp_workers.py and
verl/workers/actor/dp_actor.py.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Endings of Ray's task names; the longest match is used.
_METHODS = (
    "init_model", "generate_sequences", "compute_log_prob", "compute_ref_log_prob", "update_actor",
    "compute_values", "update_critic", "compute_rm_score", "save_checkpoint", "load_checkpoint",
    "update_weights", "wake_up", "sleep", "critic_infer_batch", "critic_train_mini_batch",
    "critic_train_batch", "rollout_mode", "generate",
)  # fmt: skip
_FRAME = re.compile(r'File "(?P<file>[^"\n]{1,400})", line \d{1,7}, in (?P<function>[\w.<>]{1,120})')
_TASK = re.compile(r"\bray::(?P<class>\w{1,80})(?:\.(?P<method>\w{1,200}))?\(\)")
#: Classes and functions that run verl's training loop and have no model.
_DRIVER = re.compile(r"\w*(?:Runner|main_task|Trainer)(?:V\d)?\Z")
_TASK_FILE = "ray::"

_ROLES = {
    "ref": ("compute_ref_log_prob", "_compute_ref_log_prob", "get_reference_policy_logprobs"),
    "log-prob": ("compute_log_prob",),
    "old": ("_compute_old_log_prob",),
    "values": ("compute_values", "_compute_values", "critic_infer_batch"),
    "actor": ("update_actor", "_update_actor", "update_policy"),
    "critic": ("update_critic", "_update_critic", "critic_train_mini_batch", "critic_train_batch"),
    "reward": ("compute_rm_score",),
    "generate": ("generate_sequences",),
    "engine": ("generate", "run_batch", "forward_batch_generation"),
    "startup": (
        "init_model", "init_workers", "_build_model_optimizer", "_build_critic_model_optimizer",
        "_build_rollout", "_build_module", "_build_fsdp_module", "_build_model", "load_mcore_dist_weights",
        "fsdp2_load_full_state_dict", "launch_server", "launch_servers", "init_hybrid", "init_standalone",
        "init_colocated", "determine_available_memory", "determine_num_available_blocks", "profile_run",
        "make_layers", "capture_model", "compile_or_warm_up_model", "_initialize_kv_caches",
        "initialize_kv_caches", "initialize_kv_cache", "initialize_from_config", "init_device",
        "_dummy_sampler_run", "from_engine_args", "_init_executor", "init_memory_pool", "init_cuda_graphs",
        "init_device_graphs", "init_torch_distributed", "profile_max_num_token",
    ),
    "weight-sync": (
        "wake_up", "_wake_up", "resume_memory_occupation", "release_memory_occupation", "update_weights",
        "update_weights_from_tensor", "update_weights_from_ipc", "update_weights_from_distributed",
        "update_weights_from_ipc_handles", "sync_model_weights", "load_dtensor_weights",
        "load_megatron_weights", "update_params", "rollout_mode", "trainer_mode", "get_per_tensor_param",
        "get_per_tensor_param_shard", "per_tensor_generator", "send_weights", "receive_weights",
        "async_send_weights", "create_and_map",
    ),
    "checkpoint": ("save_checkpoint", "load_checkpoint", "_save_checkpoint", "_load_checkpoint"),
}  # fmt: skip
_PARTS = {
    "backward": ("backward", "run_backward", "_engine_run_backward", "backward_step", "custom_backward"),
    "optimizer": (
        "_optimizer_step", "optimizer_step", "step_with_ready_grads", "clip_grad_norm_",
        "fsdp2_clip_grad_norm_", "_multi_tensor_adamw", "_multi_tensor_adam", "_single_tensor_adamw",
        "prepare_grads", "adamw",
    ),
    "load": (
        "load_fsdp_model_to_gpu", "load_fsdp_optimizer", "load_fsdp_param_and_grad",
        "load_megatron_model_to_gpu", "load_megatron_optimizer",
    ),
    "forward": (
        "_forward_micro_batch", "forward_step", "forward_step_calc_loss", "loss_func", "logits_processor",
        "entropy_from_logits", "logprobs_from_logits", "compute_entropy_loss", "compute_value_loss",
        "agg_loss", "compute_policy_loss", "compute_policy_loss_vanilla", "kl_penalty", "ppo_loss",
        "value_loss",
    ),
}  # fmt: skip
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}
#: Common function names, with the files in which they imply a phase.
_IN_FILE = (
    ("startup", r"(?:vllm|sglang)/.*\.py\Z", ("load_model", "initialize")),
    ("startup", r"vllm/(?:entrypoints/llm|engine/|v1/engine/|model_executor/models/).*", ("__init__",)),
    ("startup", r"cuda_graph_runner\.py\Z", ("__init__", "capture")),
    ("weight-sync", r"sharding_manager/(?:fsdp|megatron)_(?:vllm|sglang)\.py\Z", ("__enter__",)),
    ("weight-sync", r"(?:rollout|vllm|sglang|memory_saver)", ("resume", "sleep", "release")),
    ("checkpoint", r"dist_checkpointing/.*", ("save", "save_preprocess", "apply_saving_parallelization")),
    ("checkpoint", r"(?:fsdp|megatron)_checkpoint_manager\.py\Z", ("<any>",)),
    ("optimizer", r"torch/optim/|/optimizer", ("step",)),
    (
        "inference", r"(?:vllm|sglang)/.*",
        ("execute_model", "sample", "compute_logits", "compute_logprobs", "forward_extend", "forward_decode"),
    ),
)  # fmt: skip
_FILES = tuple((meaning, re.compile(pattern), names) for meaning, pattern, names in _IN_FILE)
#: The phases of an update: forward, backward and optimizer, for the actor and for the critic.
_UPDATE = {
    "actor": ("update-forward", "update-backward", "optimizer-step"),
    "critic": ("critic-forward", "critic-backward", "critic-optimizer-step"),
}
#: Roles that no deeper function refines, and functions that are less specific than their callers.
_ENDS, _SHARED = {"startup", "weight-sync", "checkpoint"}, {"_forward_micro_batch", "forward_step"}
_PART_INDEX = {"forward": 0, "backward": 1, "optimizer": 2, "load": 2}
_FORWARDS = ("old-log-prob", "ref-log-prob", "update-forward", "critic-values", "critic-forward")


class Frame(NamedTuple):
    """A function of a traceback, or the Ray task that begins a part of it.

    ``file`` is ``ray::`` for a task; ``line`` is the line of the log.
    """

    file: str
    function: str
    line: int


class Told(NamedTuple):
    """The possible phases, the function that decides them, and whether it is known only from a Ray task."""

    phases: tuple[str, ...]
    frame: str
    by_task: bool = False

    @property
    def phase(self) -> str:
        """The phase; unknown if several are possible."""
        return self.phases[0] if len(self.phases) == 1 else "unknown"


def frame_of(text: str, line: int) -> Frame | None:
    """Return the frame in a line of a log; None if there is none.

    >>> frame_of('  File "/verl/workers/actor/dp_actor.py", line 275, in update_policy', 9).function
    'update_policy'
    >>> frame_of("RayTaskError(X): ray::WorkerDict.actor_rollout_update_actor() (pid=1)", 9).function
    'update_actor'
    """
    if match := _FRAME.search(text):
        return Frame(match["file"].replace("\\", "/"), match["function"].rpartition(".")[2], line)
    if match := _TASK.search(text):
        name = match["method"] or match["class"]
        method = max((method for method in _METHODS if name.endswith(method)), key=len, default=name)
        return Frame(_TASK_FILE, method, line)
    return None


def is_driver_task(text: str) -> bool:
    """Return whether a line contains the Ray task that runs the training loop."""
    match = _TASK.search(text)
    return bool(match and _DRIVER.match(match["class"]))


def told_by(frames: Sequence[Frame], *, whole: bool, ended: bool = True) -> Told:
    """Return the phases in which a traceback may end.

    The deepest function that implies a phase decides. If the beginning is missing, functions that several
    phases share are ignored: for example, the actor's functions also compute the reference's log-probs.

    Args:
        frames: its frames, outermost first.
        whole: the beginning of the traceback is present.
        ended: the end of the traceback, its message, is present.

    >>> update = [Frame("dp_actor.py", "update_policy", 1), Frame("torch/_tensor.py", "backward", 2)]
    >>> told_by(update, whole=False).phase
    'update-backward'
    >>> told_by(update[1:], whole=False).phases
    ('update-backward', 'critic-backward')
    """
    role, role_frame, part, part_frame = "", None, "", None
    for frame in frames:
        meaning = _meaning(frame.file, frame.function)
        if meaning in _ROLES:
            if _keeps(role, meaning):
                continue
            role, role_frame = meaning, frame
            part, part_frame = "", None
        elif meaning and (part != "backward" or meaning == "optimizer"):
            part, part_frame = meaning, frame
    role = role or _role_of_files(frames, part)
    phases = _phases(role, part, role_frame, whole=whole, ended=ended)
    is_vague = role not in _UPDATE and part_frame and part_frame.function in _SHARED
    told = role_frame if role_frame and (is_vague or role in _ENDS) else part_frame or role_frame
    deciding = [frame for frame in (role_frame, part_frame) if frame]
    by_task = bool(deciding) and all(frame.file == _TASK_FILE for frame in deciding)
    return Told(phases, told.function if told else "", by_task)


@lru_cache(maxsize=10_000)  # all workers have the same functions
def _meaning(file: str, function: str) -> str:
    """Return the role or part that a function implies; empty if none."""
    for meaning, pattern, names in _FILES:
        if (function in names or names == ("<any>",)) and pattern.search(file):
            return meaning
    if function == "generate" and not re.search(r"vllm|sglang|trtllm|transformers|ray::", file):
        return ""
    return _ROLE_OF.get(function) or _PART_OF.get(function, "")


def _keeps(role: str, meaning: str) -> bool:
    """Return whether a role is kept although a deeper function implies another one."""
    # With LoRA the actor computes the reference's log-probs: ray_trainer.py:1277 at 1dda039b9.
    if meaning == "log-prob":
        return role in {"ref", "old"}
    return (role, meaning) in {("startup", "engine"), ("startup", "weight-sync"), ("weight-sync", "engine")}


def _role_of_files(frames: Iterable[Frame], part: str) -> str:
    """Return the role that the file of a function alone implies."""
    if part == "optimizer":
        for frame in frames:
            if frame.file.endswith(("dp_actor.py", "megatron_actor.py")):
                return "actor"
            if frame.file.endswith(("dp_critic.py", "megatron_critic.py")):
                return "critic"
    return ""


def _phases(role: str, part: str, frame: Frame | None, *, whole: bool, ended: bool) -> tuple[str, ...]:
    if role in _UPDATE:
        found = _UPDATE[role]
        return (found[_PART_INDEX[part]],) if part in _PART_INDEX else found
    if role == "log-prob":
        return ("old-log-prob",) if whole else ("old-log-prob", "ref-log-prob")
    if role == "generate":
        if part == "load":
            return ("weight-sync",)
        agents = frame is not None and "agent_loop" in frame.file
        if ended and (part == "inference" or agents):
            return ("rollout",)
        return ("rollout", "weight-sync") if ended else ("rollout", "weight-sync", "old-log-prob")
    if role == "engine":
        return ("rollout",)
    if role == "reward":
        return ()
    if role:
        return ({"ref": "ref-log-prob", "old": "old-log-prob", "values": "critic-values"}.get(role, role),)
    if part == "inference":
        return ("rollout",) if whole and ended else ("rollout", "startup")
    if part == "forward":
        return _FORWARDS
    if part in {"backward", "optimizer"}:
        index = _PART_INDEX[part]
        return (_UPDATE["actor"][index], _UPDATE["critic"][index])
    return ()
