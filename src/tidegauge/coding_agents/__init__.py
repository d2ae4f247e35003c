"""Coding agents: their hooks, and the sessions that they write themselves.

``endpoint`` listens for hooks on this machine, ``sessions`` makes runs of their events and answers
them; ``session_files`` finds recorded sessions, ``session_transcript`` makes runs and steps of
them, ``tails`` follows those that are being written. ``agents`` lists whose hooks are read.
"""
