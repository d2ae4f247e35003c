"""Real coding agents from npm, in a home of their own, with a scripted model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from support.requirements import missing

__all__ = ["AGENTS", "Ran", "RealAgent"]

PLACE: Final = Path(__file__).parents[2] / ".coding-agents"
PROMPT: Final = "Read missing-config.yaml and report the port"
SECONDS: Final = 300


class Ran(NamedTuple):
    """A session that has ended.

    Args:
        code: the exit code of the agent.
        output: what it printed.
        requests: the bodies of the requests to its model.
    """

    code: int
    output: str
    requests: list[Any]

    @property
    def conversation(self) -> str:
        """All that its model was given in the last request."""
        return max((json.dumps(body) for body in self.requests), key=len)


class RealAgent(NamedTuple):
    """A coding agent.

    Args:
        package: its package, with the version.
        program: its program.
        files: its settings, by their path in the home, for a port of the model and a project.
        arguments: of its program, before the prompt.
        variables: of its environment, for a port of the model.
    """

    package: str
    program: str
    files: Callable[[int, Path], Mapping[str, str]]
    arguments: tuple[str, ...]
    variables: Callable[[int], Mapping[str, str]]

    def install(self) -> Path:
        """The program; installs it, once."""
        if shutil.which("npm") is None:
            missing("npm is not installed")
        folder = PLACE / self.program
        program = folder / "node_modules" / ".bin" / self.program
        if not program.exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text("{}")
            npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", self.package]
            subprocess.run(npm, cwd=folder, check=True, timeout=600)
        return program

    def prepare(self, home: Path, port: int) -> None:
        """Write its settings, and a project."""
        shop = home / "shop"
        shop.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q"], cwd=shop, check=True)
        (shop / "README.md").write_text("# shop\n")
        for name, text in self.files(port, shop).items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self, home: Path, port: int, log: Path, runtime: Path) -> Ran:
        """Let it work on a prompt until it ends.

        Args:
            home: its home.
            port: that of the model.
            log: where the model writes its requests.
            runtime: where its hooks look for the watcher.
        """
        done = subprocess.run(
            [str(self.install()), *self.arguments, PROMPT],
            cwd=home / "shop",
            env={
                **environment(home, runtime),
                **self.variables(port),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        lines = log.read_text().splitlines() if log.exists() else []
        bodies = [json.loads(line).get("body") for line in lines]
        return Ran(done.returncode, done.stdout, [body for body in bodies if body])


def environment(home: Path, runtime: Path) -> dict[str, str]:
    """The environment of a user who has nothing but this home."""
    path = os.environ["PATH"]
    shown = {"TERM": "xterm-256color", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    return {"PATH": path, "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), **shown}


def _codex(port: int, shop: Path) -> dict[str, str]:
    return {
        ".codex/config.toml": f"""
model = "fake-model"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "http://127.0.0.1:{port}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
[projects."{shop}"]
trust_level = "trusted"
"""
    }


def _gemini(_: int, __: Path) -> dict[str, str]:
    settings = {
        "security": {
            "auth": {"selectedType": "gemini-api-key"},
            "folderTrust": {"enabled": False},
        },
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    return {".gemini/settings.json": json.dumps(settings, indent=2)}


def _qwen(_: int, __: Path) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
    }
    return {".qwen/settings.json": json.dumps(settings, indent=2)}


def _opencode(port: int, _: Path) -> dict[str, str]:
    options = {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "dummy"}
    limit = {"context": 100_000, "output": 8_000}
    model = {"name": "Fake", "tool_call": True, "limit": limit}
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "fake/fake-model",
        "small_model": "fake/fake-model",
        "provider": {
            "fake": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Fake",
                "options": options,
                "models": {"fake-model": model},
            }
        },
        "permission": {"bash": "allow", "edit": "allow"},
    }
    return {".config/opencode/opencode.json": json.dumps(settings)}


def _node() -> int:
    """The major version of Node."""
    if shutil.which("node") is None:
        return 0
    shown = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    return int(shown.stdout.lstrip("v").partition(".")[0])


AGENTS: Final[Mapping[str, RealAgent]] = {
    "codex": RealAgent(
        "@openai/codex@0.169.0",
        "codex",
        _codex,
        ("exec", "--dangerously-bypass-hook-trust"),
        lambda _: {"FAKE_KEY": "dummy"},
    ),
    "gemini": RealAgent(
        "@google/gemini-cli@0.61.0",
        "gemini",
        _gemini,
        ("--yolo", "-m", "gemini-2.5-pro", "-p"),
        lambda port: {
            "GEMINI_API_KEY": "dummy-key-not-real",
            "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{port}",
        },
    ),
    "qwen": RealAgent(
        f"@qwen-code/qwen-code@{'0.24.4' if _node() >= 22 else '0.15.10'}",
        "qwen",
        _qwen,
        ("--yolo", "--auth-type", "openai", "-m", "fake-model", "-p"),
        lambda port: {
            "OPENAI_API_KEY": "dummy",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "OPENAI_MODEL": "fake-model",
        },
    ),
    "opencode": RealAgent(
        "opencode-ai@1.18.33",
        "opencode",
        _opencode,
        ("run",),
        lambda _: {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
    ),
}
"""The agents, by the names of their hooks."""
