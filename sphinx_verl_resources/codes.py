"""The kinds of problems: each has a code, shown in messages, a meaning and a remedy."""

from __future__ import annotations

from enum import Enum


class Origin(Enum):
    """The part of the program that reports a kind of problem."""

    BUILD = "builds, and the command line"
    CHECK = "the command check"
    INTAKE = "commands that write run files from scripts, logs and pages"
    ESTIMATE = "commands that estimate memory"


class Code(Enum):
    """A kind of problem: its meaning, its remedy and its origin.

    Messages end with the ``id`` in brackets; ``suppress_warnings`` accepts it.
    """

    file_unreadable = (
        "A data file or directory cannot be read.",
        "Check that it exists and that its permissions allow reading.",
    )
    file_too_large = (
        "A data file is too large and is not read.",
        "Split it into several files; a run file has one run.",
    )
    file_empty = ("A data file is empty.", "Fill in the fields, or delete the file.")
    file_unexpected = (
        "A file or folder in a data directory is not read because of its name.",
        "Rename it, for example to ``<id>.yaml``, or move it elsewhere.",
    )
    encoding = ("A data file is not UTF-8 text.", "Save it as UTF-8.")
    bad_character = (
        "A text contains an invisible character, which can hide or reorder text in a review.",
        "Delete it; data never need control or bidirectional characters.",
    )
    yaml_syntax = ("A file is not valid YAML.", "Fix the syntax at the place in the message.")
    yaml_feature = (
        "A file uses a YAML feature that data files do not support: anchors, aliases, merge keys, tags, "
        "or several documents.",
        "Write the value out at each place.",
    )
    duplicate_key = ("The same key is given twice.", "Keep one of the two.")
    unknown_key = (
        "A key is not in the schema, or looks like a misspelt key of verl's configuration.",
        "Correct the spelling, or remove the key.",
    )
    missing_key = ("A required key is missing.", "Add it.")
    wrong_type = ("A value has the wrong type.", "Write a value of the type in the message.")
    wrong_value = (
        "A value is outside its range or has the wrong form.",
        "Write a value that the message allows.",
    )
    unknown_value = ("A value is not one of the allowed values.", "Use one of the values in the message.")
    unknown_size = ("A size class does not exist.", "Use one of the size classes in the message.")
    unknown_gpu = (
        "A GPU is not in the registry of GPUs.",
        "Correct the name, or add the GPU to ``gpus.yaml``.",
    )
    unknown_model = (
        "A model is not in the registry of models.",
        "Correct the name, or add the model to ``architectures.yaml``.",
    )
    bad_url = ("A link is not a plain http(s) address.", "Write ``https://…``.")
    email_address = ("A field contains an e-mail address.", "Give a name, and link a public profile instead.")
    id_mismatch = ("The id of a run differs from its file name.", "Make the two equal.")
    wrong_size = (
        "The size class of a run is not the nearest one to the model's number of parameters.",
        "Write the size class in the message, or correct the model.",
        Origin.CHECK,
    )
    duplicate_id = (
        "Two files in different directories record a run with the same id.",
        "Rename one of the two.",
    )
    duplicate_name = (
        "Two entries of a registry share a name or an alias, or two cases share an id.",
        "Keep the name in one of the two.",
    )
    todo = ("The value of a field is still TODO.", "Fill it in, or remove the key.")
    gpu_count = (
        "The number of GPUs does not equal the number of nodes times the GPUs per node.",
        "Correct ``gpus``, ``trainer.nnodes`` or ``trainer.n_gpus_per_node``.",
        Origin.CHECK,
    )
    impossible_settings = (
        "With these settings verl does not start, for example because sizes do not divide evenly.",
        "Record the settings of the actual run; see the message.",
        Origin.CHECK,
    )
    untested_claim = (
        "A tested run lacks a tag, the type of its GPUs or its rollout engine.",
        "Fill it in, or set ``kind`` to ``measured``, ``stated`` or ``script-default``.",
    )
    script_name = (
        "The name of the launch script contradicts the run's fields.",
        "Correct the fields, or link the script that was actually run.",
        Origin.CHECK,
    )
    config_key = (
        "A run sets, or the analysis recommends, a key that is unknown to verl, renamed, deprecated or "
        "ignored.",
        "Use the key in the message, or remove the key. Add keys of your own recipe to ``config_keys.yaml``.",
    )
    not_modelled = (
        "The estimate omits something that changes the result; see the message.",
        "Treat the result as approximate.",
        Origin.ESTIMATE,
    )
    shell_syntax = (
        "A launch script has a syntax error, no training command or several, or settings outside of it.",
        "Fix it at the place in the message.",
        Origin.ESTIMATE,
    )
    not_training = (
        "A launch script starts a program that is not reinforcement-learning training.",
        "Give the script that starts the training.",
        Origin.ESTIMATE,
    )
    unresolved = (
        "The launch script alone does not determine the value of a setting.",
        "Write the value out, or give the variable with ``--env``.",
    )
    assumed_device = (
        "A launch script detects its device, which is assumed to be a GPU.",
        "If the run was on another device, give the variable with ``--env``.",
        Origin.ESTIMATE,
    )
    unused_variable = (
        "The launch script does not read a variable given with ``--env`` from its environment.",
        "Correct the name; a variable that the script itself sets cannot be given.",
        Origin.ESTIMATE,
    )
    config = ("A ``verl_resources_*`` value in conf.py is invalid.", "Correct it; see the message.")
    reference = (
        "The target of a role is not in the data, or no page shows it.",
        "Correct the name, or add the directive that shows the target to a page; see the message.",
    )
    directive = (
        "A directive or role has an invalid argument or option.",
        "Correct it; see the message.",
    )
    unread = (
        "A line of a launch script or log looks like a setting, metric or version, but could not be read.",
        "Look at the line, and add the value to the run file if it matters.",
        Origin.INTAKE,
    )
    several_runs = (
        "A log contains several runs.",
        "Give a log that contains only the run to record.",
        Origin.INTAKE,
    )
    out_of_memory = (
        "The run in the log ran out of memory.",
        "Run ``verl-resources diagnose`` to find out why. Give the log of a run that succeeded, or add "
        "``--despite-out-of-memory``.",
        Origin.INTAKE,
    )
    log_differs = (
        "A launch script and a log contradict each other.",
        "Give the script and the log of the same run, or correct the run file.",
        Origin.INTAKE,
    )
    left_out = (
        "Settings that describe a machine rather than a run are not written to the run file.",
        "No action is needed. If others need one of the settings, add it by hand.",
        Origin.INTAKE,
    )
    script_place = (
        "The path of a launch script in verl's repository is unknown, so the run cannot link it.",
        "Commit the script, or add ``script`` to the run file.",
        Origin.INTAKE,
    )
    undecided = (
        "A field of a new run file has no value.",
        "Replace the TODO in the file, or give the option in the message.",
        Origin.INTAKE,
    )

    # The further checks of ``verl-resources check``: see the rules in ``lint``.
    schema_line = (
        "The data directory has schemas, but the first line of a file does not point editors to its schema.",
        "Begin the file with the line in the message.",
        Origin.CHECK,
    )
    unquoted_version = (
        "A version, commit or range of lines is not in quotes; YAML may read a similar one as a number.",
        "Put it in double quotes.",
        Origin.CHECK,
    )
    peak_above_capacity = (
        "The measured peak exceeds the GPU's memory.",
        "Correct the figure, its unit (GiB per GPU), its counter or the GPU.",
        Origin.CHECK,
    )
    future_date = (
        "The date of a run is in the future.",
        "Write today's date.",
        Origin.CHECK,
    )
    no_evidence = (
        "A run has no evidence.",
        "Add a log, a dashboard or a screenshot under ``evidence``.",
        Origin.CHECK,
    )
    no_date = (
        "A tested run has no date.",
        "Add ``added``; the date indicates the version of verl.",
        Origin.CHECK,
    )
    no_version = (
        "A tested run does not record the version of verl or of the rollout engine.",
        "Add ``versions.verl`` and ``infer.version``, as the log prints them.",
        Origin.CHECK,
    )
    moving_ref = (
        "A link points to a branch, whose content can change or disappear.",
        "Link a commit; on GitHub, press ``y`` on a file to get its permanent address.",
        Origin.CHECK,
    )
    unknown_ref = (
        "The checkout of verl does not have the commit.",
        "Correct the commit, or fetch it into the checkout.",
        Origin.CHECK,
    )
    unknown_path = (
        "The commit of verl does not have the file, so the link is broken.",
        "Correct the path; the message suggests the nearest one in that commit.",
        Origin.CHECK,
    )
    script_differs = (
        "The linked script sets a different value from the recorded one.",
        "Link the commit that was run, or record the value that was run.",
        Origin.CHECK,
    )
    gpu_memory = (
        "A GPU's memory in MiB does not match its nominal memory in GB.",
        "Check both: ``memory_mib`` is the driver's figure in 2^20 bytes, ``memory_gb`` the product's.",
        Origin.CHECK,
    )
    incomplete_entry = (
        "An entry of a registry has no source for its figures.",
        "Add the key in the message.",
        Origin.CHECK,
    )
    parameter_count = (
        "The recorded parameter count of a model differs from the count computed from its shape.",
        "Compare the shape with config.json, which determines the count exactly.",
        Origin.CHECK,
    )
    duplicate_run = (
        "Two runs record the same model, GPUs, task, backend, engine and settings, and do not differ in "
        "versions or scripts.",
        "Keep one of the two, or record the difference.",
        Origin.CHECK,
    )
    recommended_below_min = (
        "A RECOMMENDED run has less hardware than every MIN run of the same model and task.",
        "Correct the tag of one of the two.",
        Origin.CHECK,
    )
    far_from_computed = (
        "The measured peak is outside the estimate's range.",
        "Correct the figure or the settings; if both are right, add a note.",
        Origin.CHECK,
    )

    def __init__(self, meaning: str, remedy: str, origin: Origin = Origin.BUILD) -> None:
        self.meaning = meaning
        self.remedy = remedy
        self.origin = origin

    @property
    def id(self) -> str:
        """The full code, for example ``verl.unknown_key``."""
        return f"verl.{self.name}"
