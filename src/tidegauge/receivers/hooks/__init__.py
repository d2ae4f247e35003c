"""Hooks of coding agents: what an agent reports before and after its tools becomes a run here.

``endpoint`` listens on this machine only, ``sessions`` makes runs of events and returns answers. A
module an agent reads its payloads and writes its answers: ``codex``, ``gemini``, ``qwen``,
``opencode``, ``claude``, and ``generic`` for your own; ``agents`` lists them.
"""
