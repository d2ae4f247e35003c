"""Coding agents: their hooks, and the sessions that they write themselves.

Each agent has a file with all that is known of it, a ``KnownAgent``; ``agents`` lists them.
``endpoint`` listens for hooks on this machine, and ``sessions`` makes runs of their events and
answers them. ``session_transcript`` makes runs and steps of a session's records, ``session_files``
reads its file, and ``tails`` follows those that are being written. ``installation`` puts hooks into
agents' settings; ``hook_client`` is the hook.
"""
