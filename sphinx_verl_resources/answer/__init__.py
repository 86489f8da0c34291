"""Answers: will it run on these GPUs, and if not, what to change. The one decision that everybody asks.

- ``question``: what people ask, as a request to the estimator, and what they left open.
- ``evidence``: the recorded runs that bear on it. ``trust``: the measured runs of its kind.
- ``candidates``: the ``layouts`` that can be tried with FSDP and with Megatron, which GPUs share.
- ``search``: those that are tried on a GPU; the best is the one that is told.
- ``changes``: what makes it fit where it does not.
- ``answer`` puts these together, ``fewest`` turns the question round, ``export`` is for programs.
"""
