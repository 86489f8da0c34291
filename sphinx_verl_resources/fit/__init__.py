"""Answers: will it run on these GPUs, and if not, what to change. Pages, commands and programs all use these.

- ``question``: the user's question as a request to the estimator, and what it leaves open.
- ``evidence``: the recorded runs relevant to a question. ``trust``: the measured runs of the same kind.
- ``layouts``: ways to distribute a run over its GPUs. ``search``: the search for the best one.
- ``changes``: the settings that make a run fit. ``command``: verl's command line for a layout.
- ``answer``: the decision from all of these. ``fewest``: the fewest GPUs for a model.
- ``grid``: the answers for the form. ``export``: answers for programs.
"""
