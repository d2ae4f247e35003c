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
        hooks: the name of its hooks.
        package: its package, with the version.
        program: its program.
        files: its settings, by their path in the home, for a port of the model and a project.
        arguments: of its program, before the prompt.
        variables: of its environment, for a port of the model.
        node: the major version of Node that it needs. If that of the machine is older, one is
            installed with it.
    """

    hooks: str
    package: str
    program: str
    files: Callable[[int, Path], Mapping[str, str]]
    arguments: tuple[str, ...]
    variables: Callable[[int], Mapping[str, str]]
    node: int = 20

    def install(self) -> Path:
        """The folder with the program; installs it, once."""
        if shutil.which("npm") is None:
            missing("npm is not installed")
        folder = PLACE / self.package.rpartition("/")[2]
        programs = folder / "node_modules" / ".bin"
        if not (programs / self.program).exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text("{}")
            packages = [f"node@{self.node}"] if _node() < self.node else []
            npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", *packages, self.package]
            subprocess.run(npm, cwd=folder, check=True, timeout=600)
        return programs

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
        programs, variables = self.install(), environment(home, runtime)
        done = subprocess.run(
            [str(programs / self.program), *self.arguments, PROMPT],
            cwd=home / "shop",
            env={
                **variables,
                "PATH": f"{programs}{os.pathsep}{variables['PATH']}",
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


def _openai(port: int) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": "dummy",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_MODEL": "fake-model",
    }


def _qwen_code(version: str, node: int) -> RealAgent:
    return RealAgent(
        "qwen",
        f"@qwen-code/qwen-code@{version}",
        "qwen",
        _qwen,
        ("--yolo", "--auth-type", "openai", "-m", "fake-model", "-p"),
        _openai,
        node,
    )


def _node() -> int:
    """The major version of Node."""
    if shutil.which("node") is None:
        return 0
    shown = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    return int(shown.stdout.lstrip("v").partition(".")[0])


AGENTS: Final[Mapping[str, RealAgent]] = {
    "codex": RealAgent(
        "codex",
        "@openai/codex@0.169.0",
        "codex",
        _codex,
        ("exec", "--dangerously-bypass-hook-trust"),
        lambda _: {"FAKE_KEY": "dummy"},
    ),
    "gemini": RealAgent(
        "gemini",
        "@google/gemini-cli@0.61.0",
        "gemini",
        _gemini,
        ("--yolo", "-m", "gemini-2.5-pro", "-p"),
        lambda port: {
            "GEMINI_API_KEY": "dummy-key-not-real",
            "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{port}",
        },
    ),
    "qwen": _qwen_code("0.24.4", 22),
    "qwen-0.15": _qwen_code("0.15.10", 20),
    "copilot": RealAgent(
        "copilot",
        "@github/copilot@1.0.102",
        "copilot",
        lambda _, __: {},
        ("--allow-all-tools", "-p"),
        lambda port: {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_MODEL": "fake-model",
            "COPILOT_PROVIDER_API_KEY": "dummy",
            "COPILOT_PROVIDER_BASE_URL": f"http://127.0.0.1:{port}/v1",
        },
        22,
    ),
    "opencode": RealAgent(
        "opencode",
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
"""The agents."""
