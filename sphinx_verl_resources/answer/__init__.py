"""Answers: will it run on these GPUs, and if not, what to change. Pages, commands and programs all ask here.

- ``question``: what people ask, as a request to the estimator, and what they leave open.
- ``evidence``: the recorded runs that bear on a question. ``trust``: the measured runs of its kind.
- ``layouts``: ways to lay a run over its GPUs. ``candidates``: those worth trying, shared by all GPUs.
- ``search``: the candidates that are tried on one GPU, until the best is found.
- ``changes``: what makes a run fit. ``command``: verl's command line for a layout.
- ``answer``: the decision from all of these. ``fewest``: the fewest GPUs for a model.
- ``sizes``: tables by size class. ``grid``: the answers of the form. ``export``: answers for programs.
"""
