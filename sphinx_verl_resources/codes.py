"""The kinds of problems: each has a code that messages carry, a meaning and a remedy."""

from __future__ import annotations

from enum import Enum


class Origin(Enum):
    """The part of the program that reports a kind of problem."""

    BUILD = "builds, and the command line"
    CHECK = "the command check"
    INTAKE = "commands that write run files from scripts, logs and pages"
    ESTIMATE = "commands that estimate memory"


class Code(Enum):
    """The kinds of problems: meaning, remedy, and who reports it besides a build.

    ``id`` is what a message carries in brackets and what ``suppress_warnings`` accepts.
    """

    file_unreadable = (
        "A data file or directory cannot be read.",
        "Check that it exists and that its permissions allow reading.",
    )
    file_too_large = (
        "A data file is larger than any real one would be; it is not read.",
        "Split the file: one run per file.",
    )
    file_empty = ("A data file has no content.", "Fill in the fields, or delete the file.")
    file_unexpected = (
        "A file in a data directory has a name that is never read.",
        "Rename it to ``<id>.yaml``, or move it elsewhere.",
    )
    encoding = ("A data file is not UTF-8 text.", "Save it as UTF-8.")
    bad_character = (
        "The text holds an invisible character that can hide or reorder what a reviewer sees.",
        "Delete it; control and bidirectional characters are never needed.",
    )
    yaml_syntax = ("The file is not valid YAML.", "Mend the syntax at the place named.")
    yaml_feature = (
        "The file uses a YAML feature that data files do without: anchors, aliases, merge keys, tags, "
        "several documents, or very deep nesting.",
        "Write the value out where it is needed.",
    )
    duplicate_key = ("A mapping has the same key twice.", "Keep one of the two.")
    unknown_key = (
        "A key is not part of the schema, or not of verl's configuration, and looks like one that is.",
        "Correct the spelling, or remove it.",
    )
    missing_key = ("A required key is missing.", "Add it.")
    wrong_type = ("A value has the wrong type.", "Write a value of the type named in the message.")
    wrong_value = (
        "A value is outside its range or has the wrong form.",
        "See the message for what is allowed.",
    )
    unknown_value = ("A value is not one of those allowed.", "Use one of the values listed.")
    unknown_size = ("A size class does not exist.", "Use one of the size classes listed.")
    unknown_gpu = ("A GPU is not in the registry.", "Correct the name, or add the GPU to ``gpus.yaml``.")
    unknown_model = (
        "A checkpoint is not in the registry.",
        "Correct the name, or add the model to ``architectures.yaml``.",
    )
    bad_url = ("A link is not a plain http(s) address.", "Write ``https://…``.")
    email_address = ("A field holds an e-mail address.", "Name the person and link a public profile instead.")
    id_mismatch = ("The id of a run differs from its file name.", "Make the two equal.")
    wrong_size = (
        "The size class of a run is not the one nearest to the model's number of parameters.",
        "Write the size class that the message names, or correct the model.",
    )
    duplicate_id = (
        "Two files in different directories record a run under the same id.",
        "Rename one of them.",
    )
    duplicate_name = (
        "Two registry entries share a name or an alias, or two cases an id.",
        "Keep the name in one of them.",
    )
    todo = ("A field still holds the word TODO.", "Fill it in, or remove the key.")
    gpu_count = (
        "The number of GPUs is not that of the nodes times the GPUs of each.",
        "Correct the one that is wrong: ``gpus``, ``trainer.nnodes`` or ``trainer.n_gpus_per_node``.",
    )
    impossible_settings = (
        "With these settings verl does not start: sizes do not divide, or values do not exist.",
        "Record the settings that really ran; see the message.",
    )
    untested_claim = (
        "A run that counts as tested lacks what a test would have shown.",
        "Fill it in, or set ``kind`` to ``measured``, ``stated`` or ``script-default``.",
    )
    script_name = (
        "The name of the script contradicts the row.",
        "Correct the row, or link the script that was really run.",
    )
    config_key = (
        "A run sets, or the analysis advises, a key of verl's configuration that verl does not know, has "
        "renamed or ignores.",
        "Write the name that the message gives, or remove the key. Keys of your own recipe belong into "
        "``config_keys.yaml``.",
    )
    unexplained_difference = (
        "A printed figure differs from what its formula gives, and no cause is recorded.",
        "Correct the figure, or record under ``causes`` or ``carried`` why it differs.",
    )
    stale_cause = (
        "A cause is recorded for a printed figure that agrees with its formula.",
        "Remove the cause.",
    )
    not_modelled = (
        "The estimate leaves out something that changes the result.",
        "Treat the result as approximate; the message says what is missing.",
        Origin.ESTIMATE,
    )
    shell_syntax = (
        "A launch script has a syntax error, or passes no settings to verl where it seems to.",
        "Mend it at the place named.",
        Origin.ESTIMATE,
    )
    not_training = (
        "A launch script starts a program that does not train with reinforcement learning.",
        "Give the script that starts the training.",
        Origin.ESTIMATE,
    )
    unresolved = (
        "The script alone does not determine the value of a setting.",
        "Write the value out, or give the variable with ``--env``.",
    )
    assumed_device = (
        "A script asks which device it runs on, and the answer is taken to be a GPU.",
        "Give the variable with ``--env`` where the run was on another device.",
        Origin.ESTIMATE,
    )
    unused_variable = (
        "A variable is given that the script does not take from its environment.",
        "Correct its name; a variable that the script sets itself cannot be given.",
        Origin.ESTIMATE,
    )
    config = ("A ``verl_resources_*`` value in conf.py cannot be used.", "Correct it; see the message.")
    reference = (
        "A role refers to something that the data do not record, or that no page shows.",
        "Correct the name, or put the directive that shows it on a page; see the message.",
    )
    directive = (
        "A directive or role has an argument or option that cannot be used.",
        "Correct it; see the message.",
    )
    unread = (
        "Something in a script or log looks like a setting, a metric or a version and could not be read.",
        "Look at the line, and add what matters by hand.",
        Origin.INTAKE,
    )
    several_runs = (
        "A log holds several runs.",
        "Give the log of the one that the file is to record.",
        Origin.INTAKE,
    )
    out_of_memory = (
        "The run whose log was given failed for lack of memory.",
        "Ask ``verl-resources diagnose`` why. Give the log of a run that succeeds, or add "
        "``--despite-out-of-memory``.",
        Origin.INTAKE,
    )
    log_differs = (
        "A launch script and a log say different things about the same run.",
        "Give the script and the log of one run, or correct the file.",
        Origin.INTAKE,
    )
    left_out = (
        "Settings that describe a machine rather than a run are not written into a run file.",
        "Nothing; add by hand what others need.",
        Origin.INTAKE,
    )
    script_place = (
        "The path of a launch script in verl's repository is unknown, so that the row cannot link it.",
        "Commit the script, or give ``--ref`` and ``--path``.",
        Origin.INTAKE,
    )
    undecided = (
        "The value of a field of a new run file is unknown.",
        "Replace TODO in the file, or give the option that the message names.",
        Origin.INTAKE,
    )
    page_syntax = (
        "A part of a hand-typed page is markup that docutils cannot read.",
        "Mend the markup at the place named.",
        Origin.INTAKE,
    )
    page_mended = (
        "Something on a hand-typed page is read, or written, differently from how it was typed.",
        "Nothing, if that is what was meant; see the message.",
        Origin.INTAKE,
    )
    page_assumed = (
        "A value that a hand-typed page leaves open was taken from elsewhere.",
        "Check it, and correct the run files that were written.",
        Origin.INTAKE,
    )
    page_row = (
        "A table or a row of a hand-typed page is not understood; it gives no run file.",
        "Complete the row on the page, or write its run file by hand.",
        Origin.INTAKE,
    )
    page_cell = (
        "A cell of a hand-typed page is not understood; it is left out.",
        "Correct the cell, or add the field to the run file.",
        Origin.INTAKE,
    )
    page_link = (
        "A link of a hand-typed page does not lead to a file of verl at a commit.",
        "Correct the link, or the field ``script`` of the run file.",
        Origin.INTAKE,
    )
    page_differs = (
        "A hand-typed page and the data differ.",
        "Correct the one that is wrong.",
        Origin.INTAKE,
    )

    # What ``verl-resources check`` asks beyond what a build does: see the rules in ``lint``.
    schema_line = (
        "The data directory holds schemas, and the first line of a file does not lead editors to its own.",
        "Begin the file with the line that the message gives.",
        Origin.CHECK,
    )
    field_order = (
        "The fields of a run are not in the order of the schema, which all other files have.",
        "Move the field to the place that the message names; ``--fix`` does not.",
        Origin.CHECK,
    )
    unquoted_version = (
        "A version, a commit or a range of lines is not in quotes: the next one may be taken for a number.",
        "Put it in double quotes.",
        Origin.CHECK,
    )
    repeated_text = (
        "The text of a link repeats the file name, which is shown anyway.",
        "Remove ``script.text``; the file name is shown without it.",
        Origin.CHECK,
    )
    stale_id = (
        "The id of a run names another model or other GPUs than the run has.",
        "Rename the run, with ``verl-resources check --fix`` for example, or correct its model or GPUs.",
        Origin.CHECK,
    )
    peak_above_capacity = (
        "The measured peak is more memory than the GPU has.",
        "Correct the figure, its unit (GiB per GPU) or its counter, or the GPU.",
        Origin.CHECK,
    )
    future_date = (
        "The date of a run is in the future.",
        "Write the day of today.",
        Origin.CHECK,
    )
    no_evidence = (
        "A run has no evidence.",
        "Add under ``evidence`` a log, a dashboard or a screenshot.",
        Origin.CHECK,
    )
    no_date = (
        "A tested run has no date.",
        "Add ``added``; which verl was current follows from it.",
        Origin.CHECK,
    )
    no_version = (
        "A tested run names no version of verl or of the rollout engine.",
        "Add ``versions.verl`` and ``infer.version``, as the log prints them.",
        Origin.CHECK,
    )
    moving_ref = (
        "A link leads to a branch, whose content changes or disappears.",
        "Name the commit; on GitHub the key y turns the address of a file into one.",
        Origin.CHECK,
    )
    unknown_ref = (
        "The checkout of verl has no such commit.",
        "Correct the commit, or fetch it into the checkout.",
        Origin.CHECK,
    )
    unknown_path = (
        "The commit of verl has no such file, so that the link is dead.",
        "Correct the path; the message names the nearest one of that commit.",
        Origin.CHECK,
    )
    script_differs = (
        "The linked script sets another value than the recorded one.",
        "Link the commit that was run, or record what was run.",
        Origin.CHECK,
    )
    unused_entry = (
        "No run and no case uses an entry of a registry.",
        "Remove it, or say in ``exceptions.yaml`` what it is there for.",
        Origin.CHECK,
    )
    gpu_memory = (
        "The memory that a driver reports does not match the figure in the GPU's name.",
        "Look both up again; ``memory_mib`` counts 2^20 bytes, ``memory_gb`` is the product's name.",
        Origin.CHECK,
    )
    incomplete_entry = (
        "An entry of a registry does not name the source of its figures.",
        "Add the key that the message names.",
        Origin.CHECK,
    )
    parameter_count = (
        "The recorded parameter count of a model is not the one that follows from its shape.",
        "Compare the shape with config.json; the count follows from it exactly.",
        Origin.CHECK,
    )
    duplicate_run = (
        "Two runs record the same model, GPUs, task, backend, engine and settings, and no different versions "
        "or scripts.",
        "Keep one, or record what tells them apart.",
        Origin.CHECK,
    )
    recommended_below_min = (
        "A RECOMMENDED run has less hardware than every MIN run of its model and task.",
        "Correct the tag of one of the two.",
        Origin.CHECK,
    )
    far_from_computed = (
        "The measured peak is outside the range that is computed from the settings.",
        "Correct the figure or the settings; if both are right, say so in a note.",
        Origin.CHECK,
    )
    stale_exception = (
        "An exception excuses no warning, or none any more.",
        "Remove it from ``exceptions.yaml``.",
        Origin.CHECK,
    )
    excused_error = (
        "An exception names an error; only warnings can be excused.",
        "Mend the error, and remove the exception.",
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
