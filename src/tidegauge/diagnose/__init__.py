"""After a run: judged competencies, the report that people look at, and choosing runs.

- :mod:`~tidegauge.diagnose.judges`: language models score runs by competencies
- :mod:`~tidegauge.diagnose.report`: a page of recorded runs
- :mod:`~tidegauge.diagnose.condition`: the language in which runs are chosen
- :mod:`~tidegauge.diagnose.recorded_run`: what is known of a run
- :mod:`~tidegauge.diagnose.scores`: reads what judges said
"""
