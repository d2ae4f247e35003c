"""Spans of other instrumentations, read as the runs and steps of an agent.

``conventions`` has a module a convention, which says what its attributes mean; ``grouping`` finds
which spans are one turn, ``matching`` which call belongs to which choice, ``dedupe`` what is there
twice, ``external_run`` makes a run of them.
"""
