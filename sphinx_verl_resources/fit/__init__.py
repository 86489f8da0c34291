"""Answers: will it run on these GPUs, and if not, what to change. Pages, commands and programs show them.

- ``question``: the user's question as a request to the estimator, and what it leaves open.
- ``evidence``: the recorded runs that bear on a question, and the accuracy of an estimate.
- ``search``: ways to distribute a run over its GPUs, the verdict on each, and the best one.
- ``levers``: settings that save memory. ``changes``: those that make a run fit.
- ``answer``: the decision from all of these. ``fewest``: the fewest GPUs for a model.
- ``words``: the sentences about an answer. ``bars``: its phases. ``command``: verl's command line.
- ``terminal``, ``results``: answers as text, and for programs.
- ``directives``, ``form``: answers on pages, the form, and the answers that its script looks up.
"""
