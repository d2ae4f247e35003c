"""Recorded sessions of coding agents: their own transcripts, read as step events.

``session_transcript`` makes runs and steps of what an agent recorded; a module an agent reads its
records: ``codex_sessions``, ``gemini_sessions`` and so on.
``session_files`` finds the sessions in files and folders.
"""
