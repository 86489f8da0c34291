"""How fast: the speed of recorded runs, of a log's steps, and of the run that is nearest to a question."""
