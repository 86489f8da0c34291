"""The memory of a training run on each GPU, from verl's own settings. Pure functions; no files, no Sphinx.

In the order of one estimate:

- A ``request`` is resolved (``resolve``) into ``settings``; ``reading``, ``tokens`` and ``versions`` help.
- ``parameters`` and ``shape``: the sizes of the model.
- ``allocations``, and those of each role: ``fsdp``, ``megatron``, and of the rollout ``engine``.
- ``phases`` adds them up, ``estimate`` takes the peak with its range and verdict, ``suggestions`` lowers it.

Many estimates: ``tasks``, ``sweeps``. Recorded ones: ``recorded``, ``backtest``.
Fine-tuning without verl: ``training``.
What pages and programs ask: ``queries`` and ``export``, about a ``context``.
"""
