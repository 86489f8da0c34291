"""Speed: of recorded runs, of a log, and the recorded run that is nearest to a question."""
