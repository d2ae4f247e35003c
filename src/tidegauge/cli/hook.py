"""``tidegauge hook``: install and remove the hooks of coding agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tidegauge.cli.terminal import print_line
from tidegauge.coding_agents.agents import SETTINGS, titles
from tidegauge.errors import ConfigurationError

if TYPE_CHECKING:
    from tidegauge.coding_agents.installation import AgentFolders, Change

_AGENTS = tuple(SETTINGS)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    help=f"""Install or remove the hooks through which coding agents report to 'tidegauge watch'.

    \b
    Examples:
      tidegauge hook install               for all agents that you have; shows the
                                           changes and asks
      tidegauge hook install codex --yes   for one, without a question
      tidegauge hook remove                take them out again

    The agents are {titles(SETTINGS)}. While no watcher runs,
    the hooks do nothing. Other hooks and the formatting of the files are kept.
    """,
)
def hook() -> None:
    """The group."""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    yes = click.option("--yes", "-y", is_flag=True, help="Make the changes without a question.")
    agents = click.argument("agents", nargs=-1, type=click.Choice(_AGENTS), metavar="[AGENT]...")
    return yes(agents(command))


@hook.command(short_help="Add the hook to the settings of agents.")
@_options
def install(agents: tuple[str, ...], yes: bool) -> None:
    """Add the hook to the settings of the AGENTs; without a name, of all that you have.

    Shows the changes of each file, and asks. Run it again after you moved or updated tidegauge.

    A file that changes while you are asked keeps what is new in it.

    Exit code 1: a file cannot be read or written; 2: a settings file is not valid JSON, or wrong
    usage, or there is no answer. Nothing is changed then.
    """
    from tidegauge.coding_agents.installation import AgentFolders
    from tidegauge.coding_agents.installation import install as plan

    user = AgentFolders.of_user()
    chosen = agents or tuple(user.found())
    if not chosen:
        print_line(f"no agent was found; name one of {', '.join(_AGENTS)}")
        return
    changes = plan(user, chosen)
    if not changes:
        print_line(f"the hooks are installed: {', '.join(chosen)}")
    if not _made(user, changes, yes=yes, installing=True):
        return
    for agent in chosen:
        note = SETTINGS[agent].note
        if note is not None:
            print_line(note)
    print_line("next: tidegauge watch")


@hook.command(short_help="Take the hook out of the settings of agents.")
@_options
def remove(agents: tuple[str, ...], yes: bool) -> None:
    """Take the hook out of the settings of the AGENTs; without a name, of all of them.

    A file in which nothing else has changed is restored byte by byte.
    """
    from tidegauge.coding_agents.installation import AgentFolders
    from tidegauge.coding_agents.installation import remove as plan

    user = AgentFolders.of_user()
    changes = plan(user, agents or _AGENTS)
    if not changes:
        print_line("there is no hook to remove")
    _made(user, changes, yes=yes, installing=False)


def _made(user: AgentFolders, changes: list[Change], *, yes: bool, installing: bool) -> bool:
    """Show the changes, ask, and make them. Returns whether they were made."""
    from tidegauge.coding_agents.installation import apply

    for change in changes:
        for line in change.diff().removesuffix("\n").split("\n"):
            print_line(line, wrap=False)
    if changes and not yes and not _agreed():
        print_line("nothing was changed")
        return False
    shown = {change.agent: change.before for change in changes}
    for change in apply(user, changes, installing=installing):
        done = "removed" if change.after is None else "written"
        kept = "" if change.before == shown[change.agent] else "; what was new in it was kept"
        print_line(f"{change.agent}: {change.path} was {done}{kept}")
    return True


def _agreed() -> bool:
    try:
        return click.confirm("Make these changes?")
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            print_line()
            raise ConfigurationError(
                "there is no answer, so nothing was changed; use --yes to make the changes "
                "without a question"
            ) from None
        raise
