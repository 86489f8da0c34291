"""The memory of a training run on each GPU, from verl's own settings. Pure functions; no files, no Sphinx.

The modules, in the order in which an estimate uses them:

- ``resolve`` turns a ``request`` into ``settings``, with ``reading``, ``tokens`` and ``versions``.
- ``architectures``, ``parameters`` and ``shape``: the sizes of the model.
- ``allocations``: the base; ``fsdp`` and ``megatron`` for each role, ``engine`` for the rollout engine.
- ``phases`` adds them up, ``estimate`` finds the peak, its range and the verdict, ``suggestions`` lowers it.

Settings of a plan: ``tasks``. Recorded runs and cases: ``recorded``, ``backtest``.
For pages and programs: ``recorded`` and ``export``, with a ``context``.
"""
