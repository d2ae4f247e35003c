"""A run while it goes on: its turns, its calls, and what every adapter reports of them.

Adapters talk to a :class:`~tidegauge.runs.recorder.Recorder`; ``turns`` tracks turns and
their calls, ``extraction`` asks the extractors, ``waiting_runs`` keeps runs that wait for a person.
"""
