"""After runs: judged competencies, the report, and the selection of runs.

- :mod:`~tidegauge.diagnose.judges`: language models score runs by competency
- :mod:`~tidegauge.diagnose.report`: an HTML page about recorded runs
- :mod:`~tidegauge.diagnose.recorded_run`: the data of a run, and the conditions that select runs
- :mod:`~tidegauge.diagnose.competency_scores`: judged scores and how far they agree with people
"""
