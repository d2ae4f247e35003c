"""Every metric once more, as a batch: computed from all records at once, from the definitions.

Nothing here is streaming, incremental or shared with the code under test. Each function takes the
records up to some moment and gives, by name, what the metric's public attributes are to be then.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from itertools import groupby, pairwise, takewhile

NOVELTY_WINDOW = 12
CURVE_TURNS = range(20)


ENOUGH = {1: 3, 2: 6}


def repeated(pairs, lag):
    """How many of the last pairs equal the one that is ``lag`` before them."""
    earlier = zip(reversed(pairs), reversed(pairs[:-lag]), strict=False)
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], earlier))


def loops(steps, max_period=256):
    """The loops of a run, and the one that it is in: the last p steps repeat the p before."""
    pairs = [(step.state, step.action) for step in steps]
    found, looped = [], set()  # of each stretch: first step, height, last step
    on, pending, evidence = False, 0, 0.0
    for t in range(len(pairs)):
        lengths = {lag: repeated(pairs[: t + 1], lag) for lag in range(1, min(t, max_period) + 1)}
        live = {lag: length for lag, length in lengths.items() if length >= lag}
        pending = max((lengths[lag] for lag in lengths if lag not in live), default=0)
        if not live:
            on, evidence = False, 0.0
            continue
        height = max((length // lag, length, -lag) for lag, length in live.items())
        now = (height[0], -height[2])
        evidence = max(
            length / ENOUGH.get(lag, min(2 * lag, max(lag, 12))) for lag, length in live.items()
        )
        first = t + 1 - max(live.values())
        looped.update(range(first, t + 1))
        if on:
            found[-1] = (min(first, found[-1][0]), max(height, found[-1][1]), t)
        else:
            found.append((first, height, t))
        on = True
    total = len(pairs)
    return {
        "steps": total,
        "loop_steps": len(looped),
        "value": len(looped) / total if total else None,
        "loops": [
            (first, -height[2], height[0], last + 1 - first) for first, height, last in found
        ],
        "onsets": len(found),
        "period": now[1] if on else 0,
        "repeats": now[0] if on else 0,
        "evidence": evidence,
        "first_step": found[-1][0] if on else -1,
        "current_steps": found[-1][2] + 1 - found[-1][0] if on else 0,
        "pending": pending,
    }


def loop_flags(steps):
    """Of each step, whether it is a loop step."""
    looped = set()
    for count in range(1, len(steps) + 1):
        known = loops(steps[:count])
        if known["period"]:
            looped.update(range(known["first_step"], count))
    return [t in looped for t in range(len(steps))]


def tide_loops(steps, max_period=10_000):
    """TIDE's loops of a run, and the one that it is in."""
    return _read(steps, max_period)[0]


def tide_loop_flags(steps):
    """Of each step, whether it is one of TIDE's loop steps."""
    return _read(steps, 10_000)[1]


def _read(steps, max_period):
    """The run is read greedily from the left, without overlap (TIDE 3.2)."""
    pairs = [(step.state, step.action) for step in steps]
    flags = [False] * len(pairs)
    found = []  # [first repeated step, period, repeats]
    lengths = []
    cursor = 0
    start, end = 0, None  # the cycle that ended at the cursor
    while (cycle := _first_to_close(pairs, cursor, max_period)) is not None:
        start, end = cycle
        length = end - start
        lengths.append(length)
        if pairs[end : end + length] == pairs[start:end]:
            flags[end : end + length] = [True] * length
            if found and start == cursor and _ends_at(found[-1]) == end and found[-1][1] == length:
                found[-1][2] += 1
            else:
                found.append([end, length, 1])
        cursor = end
    open_steps = 0  # steps that repeat a part of the kept cycle, up to the last one
    if end is not None:
        since, kept = pairs[end:], pairs[start:end]
        if len(since) < len(kept) and since == kept[: len(since)]:
            open_steps = len(since)
    current = (0, 0, -1)
    if found:
        first, period, repeats = found[-1]
        rest = range(first + period * repeats, len(pairs))
        if all(pairs[t] == pairs[t - period] for t in rest):
            current = (period, repeats, first)
    total = len(pairs)
    fields = {
        "steps": total,
        "loop_steps": sum(flags),
        "value": sum(flags) / total if total else None,
        "cycles": len(lengths),
        "cycle_steps": sum(lengths),
        "cycle_ratio": sum(lengths) / total if total else None,
        "loops": [tuple(loop) for loop in found],
        "onsets": len(found),
        "period": current[0],
        "repeats": current[1],
        "first_step": current[2],
        "pending": open_steps,
    }
    return fields, flags


def gui_loops(steps, max_period=10_000):
    """The same as in TIDE's code for interfaces: it goes on after the rounds that it matched."""
    pairs = [(step.state, step.action) for step in steps]
    total = len(pairs)
    found = []
    cursor = loop_steps = cycles = cycle_steps = 0
    kept = []
    while (cycle := _first_to_close(pairs, cursor, max_period)) is not None:
        start, end = cycle
        kept = pairs[start:end]
        cursor = end
        while pairs[cursor : cursor + len(kept)] == kept:
            cursor += len(kept)
        repeats = (cursor - end) // len(kept)
        cycles += 1 + repeats
        cycle_steps += cursor - start
        if repeats:
            found.append((end, len(kept), repeats))
            loop_steps += cursor - end
    rest = pairs[cursor:]
    on = bool(kept) and len(rest) < len(kept) and rest == kept[: len(rest)]
    current = (0, 0, -1)
    if on and found and found[-1][0] + found[-1][1] * found[-1][2] == cursor:
        current = (found[-1][1], found[-1][2], found[-1][0])
    return {
        "steps": total,
        "loop_steps": loop_steps,
        "value": loop_steps / total if total else None,
        "cycles": cycles,
        "cycle_steps": cycle_steps,
        "loops": found,
        "onsets": len(found),
        "period": current[0],
        "repeats": current[1],
        "first_step": current[2],
        "pending": len(rest) if on else 0,
    }


def _first_to_close(pairs, cursor, max_period):
    """(start, end) of the cycle that closes first when reading from the cursor."""
    for end in range(cursor + 1, len(pairs)):
        for start in range(max(cursor, end - max_period), end):
            if pairs[start][0] == pairs[end][0]:
                return start, end
    return None


def _ends_at(loop):
    first, period, repeats = loop
    return first + period * repeats


def loop_cost(spendings):
    """Tokens and seconds of every loop, and of the last one."""
    looped = {t for one in spendings for t in one.settled}
    last = ([-1] + [one.first_step for one in spendings if one.first_step >= 0])[-1]
    lost = [one for one in spendings if one.t in looped]
    current = [one for one in lost if one.t >= last >= 0]
    return {
        "tokens": _total(one.tokens for one in lost),
        "seconds": _total(one.seconds for one in lost),
        "value": _total(one.tokens for one in lost),
        "first_step": last,
        "last_tokens": _total(one.tokens for one in current),
        "last_seconds": _total(one.seconds for one in current),
    }


def _total(amounts):
    known_amounts = [amount for amount in amounts if amount is not None]
    return sum(known_amounts) if known_amounts else None


def result_streak(steps):
    """Consecutive steps with one result that failed, say no, or repeat the action before."""
    return _streak(steps, lambda step: step.failed or step.negative)


def stuck_streak(steps):
    """Consecutive steps with one result that failed or repeat the action before."""
    return _streak(steps, lambda step: step.failed)


def near_streak(steps):
    """Results of one action in a row that differ only in places that change every time."""
    found, last = [], {}
    for step in steps:
        results = last.pop(step.action, [])
        if step.numbers is None or step.changed:
            found.append(0)
            continue
        shape, values = step.numbers
        if not results or results[-1][0] != shape or not _goes_on(results, values):
            results = []
        results = [*results, (shape, values)]
        last[step.action] = results
        if len(last) > 16:
            del last[next(iter(last))]
        found.append(len(results) if len(results) >= 3 and not _counts(results) else 0)
    return {"value": found[-1] if found else 0, "maximum": max(found, default=0)}


def _goes_on(results, values):
    changed = [i for i, one in enumerate(values) if one != results[-1][1][i]]
    if not changed:
        return False
    if len(results) == 1:
        return True
    before = [i for i, one in enumerate(results[-1][1]) if one != results[-2][1][i]]
    return (
        changed == before
        and all(earlier[i] != values[i] for _, earlier in results[-8:] for i in changed)
        and not any(
            _rises_or_falls(column) and not _rises_or_falls([*column, values[i]])
            for i in changed
            if len(column := [one[i] for _, one in results[-8:]]) == 8
        )
    )


def _counts(results):
    """Whether a number rises or falls in all results, or in the last eight."""
    return any(
        _rises_or_falls([one[i] for _, one in results[-8:]])
        for i, (one, other) in enumerate(zip(results[0][1], results[1][1], strict=True))
        if one != other
    )


def _rises_or_falls(column):
    return all(type(one) is float for one in column) and (
        column == sorted(column) or column == sorted(column, reverse=True)
    )


def _streak(steps, goes_on):
    lengths = []
    for t, step in enumerate(steps):
        before = steps[t - 1] if t else None
        if step.outcome is None:
            lengths.append(None)
        elif step.changed:
            lengths.append(0)
        elif (
            before is not None
            and before.outcome == step.outcome
            and not before.changed
            and (goes_on(step) or step.action == before.action)
        ):
            lengths.append(lengths[-1] + 1)
        else:
            lengths.append(1)
    known = [length for length in lengths if length is not None]
    current = lengths[-1] if lengths else None
    return {"value": current, "current": current, "maximum": max(known, default=None)}


def token_rate(steps):
    """The tokens of the last minute, by the whole seconds of the steps whose time is known."""
    timed = [step for step in steps if step.time is not None]
    spent = [
        (int(step.time), step.choice_tokens) for step in timed if step.choice_tokens is not None
    ]
    if not spent:
        return {"value": None}
    now = int(timed[-1].time)
    return {"value": sum(tokens for second, tokens in spent if second > now - 60)}


def empty_streak(steps):
    """Consecutive steps with one empty result."""
    if not steps or steps[-1].outcome is None:
        return {"value": None}
    last = steps[-1].outcome
    same = takewhile(
        lambda step: step.outcome == last and step.empty and not step.changed, reversed(steps)
    )
    return {"value": len(list(same))}


def failed_rounds(steps):
    """Consecutive rounds with at least one call of which every call failed."""
    rounds = [step.failed for step in steps if step.calls]
    if all(failed is None for failed in rounds):
        return {"value": None, "current": None, "maximum": None}
    trailing = len(list(takewhile(lambda failed: failed is True, reversed(rounds))))
    longest = max((len(list(run)) for failed, run in groupby(rounds) if failed is True), default=0)
    return {"value": trailing, "current": trailing, "maximum": longest}


def recurrence(steps):
    """How often the last (action, outcome) was seen before."""
    counts = []
    for t, step in enumerate(steps):
        pair = (step.action, step.outcome)
        earlier = [(past.action, past.outcome) for past in steps[:t] if not past.changed]
        seen = 0 if step.changed else earlier.count(pair)
        counts.append(None if step.outcome is None else seen)
    known = [count for count in counts if count is not None]
    last = counts[-1] if counts else None
    return {"value": last, "current": last, "maximum": max(known, default=None)}


def novelty(steps):
    """Share of new ones among the last outcomes."""
    known = [step for step in steps if step.outcome is not None]
    outcomes = [step.outcome for step in known]
    new = [outcome not in outcomes[:t] for t, outcome in enumerate(outcomes)]
    counted = [new for new, step in zip(new, known, strict=True) if new or not step.changed]
    recent = counted[-NOVELTY_WINDOW:]
    return {
        "value": sum(recent) / len(recent) if recent else None,
        "latest": bool(new) and new[-1],
    }


def action_similarity(steps, window=16):
    """Likeness of the last action to the most similar one of those shortly before it."""
    if not steps:
        return {"value": None}
    *earlier, last = steps
    if last.similarity is not None:
        return {"value": last.similarity}
    alike = [jaccard(last.words, step.words) for step in earlier[-window:]]
    return {"value": max(alike, default=0.0)}


def jaccard(left, right):
    """Share of words that two actions have in common; of no words nothing is."""
    return len(left & right) / len(left | right) if left & right else 0.0


def repetition(moments, window=16):
    """Squared likeness of every action, half of it once its outcome was new to the run.

    ``moments`` are what became known, in order: an action that was issued and whether it is
    to change something, or the index of a step that was observed (one that was to change something
    has failed) and whether its outcome was new.
    """
    issued = [known for kind, *known in moments if kind == "issue"]
    observed = {moment[1] for moment in moments if moment[0] == "observe"}
    paid_off = {t for kind, t, new in moments if kind == "observe" and new}
    steps = [step for step, _ in issued]
    alike = [
        0.0 if mutates and t not in observed else action_similarity(steps[: t + 1], window)["value"]
        for t, (_, mutates) in enumerate(issued)
    ]
    amounts = [one * one / (2 if t in paid_off else 1) for t, one in enumerate(alike)]
    return {
        "total": sum(amounts),
        "recent": math.fsum(amounts[-window:]),
        "current": alike[-1] / (2 if len(alike) - 1 in paid_off else 1) if alike else 0.0,
        "similarity": action_similarity(steps, window)["value"],
    }


def progress_auv(steps, t_max):
    """Trapezoids under the best progress so far, which stays where it is after the last turn."""
    reported = [step.progress for step in steps if step.progress is not None]
    best = [0.0]
    for step in steps:
        best.append(max(best[-1], step.progress or 0.0))
    best += [best[-1]] * t_max
    area = sum((best[t] + best[t + 1]) / 2 for t in range(t_max)) / t_max
    best_so_far = max(reported) if reported else None
    # If the next turn completes the task, the trapezoids from there on are those of 1.
    sure = [*best[: len(steps) + 1], *([1.0] * t_max)]
    upper = sum((sure[t] + sure[t + 1]) / 2 for t in range(t_max)) / t_max
    return {
        "value": area if reported else None,
        "best": best_so_far,
        "upper": upper if reported else None,
    }


def success_rate(runs):
    """Solved runs / runs of which it is known."""
    known = [run.success for run in runs if run.success is not None]
    return {
        "runs": len(known),
        "solved": sum(known),
        "value": sum(known) / len(known) if known else None,
    }


def success_curve(runs):
    """P_t, turn by turn."""
    known = [run for run in runs if run.success is not None]

    def solved_within(turn):
        return sum(run.success and run.steps <= turn for run in known) / len(known)

    return {
        "runs": len(known),
        "curve": [solved_within(turn) if turn else 0.0 for turn in CURVE_TURNS] if known else None,
        "value": sum(run.success for run in known) / len(known) if known else None,
        "solved_at": dict(Counter(run.steps for run in known if run.success)),
    }


def auv(runs):
    """Trapezoids under P_t, each run within its own t_max; its spread over the runs."""
    areas = []
    for run in runs:
        if run.success is None or run.t_max is None:
            continue
        solved = [run.success and run.steps <= turn for turn in range(run.t_max + 1)]
        solved[0] = False
        areas.append(sum((a + b) / 2 for a, b in pairwise(solved)) / run.t_max)
    spread = statistics.variance(areas) if len(areas) > 1 else None
    return {
        "runs": len(areas),
        "solved": sum(area > 0 for area in areas),
        "success_at_t_max": sum(area > 0 for area in areas) / len(areas) if areas else None,
        "total": sum(areas),
        "value": statistics.fmean(areas) if areas else None,
        "variance": spread,
        "standard_error": None if spread is None else (spread / len(areas)) ** 0.5,
    }


def loop_ratio(runs):
    """Loop steps / steps, pooled over runs."""
    steps = sum(run.steps for run in runs)
    looped = sum(run.loop_steps for run in runs)
    in_cycles = sum(run.tide_cycle_steps for run in runs)
    by_tide = sum(run.tide_loop_steps for run in runs)
    return {
        "steps": steps,
        "loop_steps": looped,
        "tide_loop_steps": by_tide,
        "tide_cycle_steps": in_cycles,
        "value": looped / steps if steps else None,
        "tide": by_tide / steps if steps else None,
        "tide_cycle_ratio": in_cycles / steps if steps else None,
    }


def stale_score(steps, place):
    """S = c + e + n over the path since the last progress (E&E 4), and its highest value."""
    path, scores = [place], [0]
    for step in steps:
        if step.place is None:
            if step.achieved:
                path = path[-1:]
        elif step.achieved:
            path = [step.place]
        elif not step.changed or step.place not in path:
            path.append(step.place)
        scores.append(stale_of(path))
    return {
        "value": scores[-1],
        "maximum": max(scores),
        "rose": len(scores) > 1 and steps[-1].place is not None and scores[-1] > scores[-2],
    }


def stale_of(path):
    """The stale score of one path."""
    visits = Counter(path)
    uses = Counter(frozenset(edge) for edge in pairwise(path) if edge[0] != edge[1])
    cycles = len(uses) - len(visits) + 1
    return cycles + sum(max(count - 2, 0) for count in (*uses.values(), *visits.values()))


def navigation(steps, place, zone):
    """Distinct places, backtracks, zone changes, and actions per stay (AgentDiagnose)."""
    at = [place]  # where the agent stands before each step, and after the last
    for step in steps:
        at.append(at[-1] if step.place is None else step.place)
    moves = [t for t in range(len(steps)) if at[t + 1] != at[t]]
    stays = {sum(move < t for move in moves) for t in range(len(steps))}
    backtracks = sum(at[t + 1] in at[: t + 1] for t in moves)
    return {
        "distinct": len(set(at)),
        "moves": len(moves),
        "backtracks": backtracks,
        "zone_changes": sum(zone(at[t + 1]) != zone(at[t]) for t in moves),
        "actions_per_stay": len(steps) / len(stays) if stays else None,
        "value": backtracks / len(moves) if moves else None,
    }


def exploration(steps, place, exits, tasks, goal):
    """Cases, targets, gain, progress and errors (E&E 4), from the definitions.

    For runs that report every place, and move along exits that were reported.
    """
    known = {place: set(exits)}
    requires = {task.id: task.requires for task in tasks}
    located = {task.id: place for task in tasks}
    achieved = _achieve(set(), requires, located, place)
    here, path = place, [place]
    required, errors = Counter(), Counter()
    last: dict[str, object] = {"case": None, "gain": None, "progress": False, "error": None}
    stale_max = 0

    def frontier():
        return {there for one in known.values() for there in one} - known.keys()

    def pending():
        return {task for task in requires if _ready(task, requires, achieved)} - achieved

    for step in steps:
        new, waiting, unseen = step.place, pending(), frontier()
        places = {located[task] for task in waiting}
        if goal in waiting:
            case, targets = 2, {located[goal]}
        elif waiting and unseen:
            case, targets = 4, unseen | places
        elif waiting:
            case, targets = 3, places
        elif unseen:
            case, targets = 1, unseen
        else:
            case, targets = 0, set()
        gain = new in targets or any(
            _distance(known, new, target) < _distance(known, here, target) for target in targets
        )

        progress = new in unseen
        known.setdefault(new, set()).update(step.exits or ())
        for task in step.tasks:
            if task.id not in requires:
                requires[task.id], located[task.id] = task.requires, new
        now = _achieve(achieved | set(step.achieved), requires, located, new)
        progress = progress or now != achieved
        achieved = now
        before = stale_of(path)
        path = [new] if progress else [*path, new]
        rose = stale_of(path) > before
        stale_max = max(stale_max, stale_of(path))
        here = new

        error = case != 0 and not progress and (not gain or (len(targets) > 1 and rose))
        kinds = {1: ["explore"], 2: ["exploit"], 3: ["exploit"], 4: ["explore", "exploit"]}
        for kind in kinds.get(case, []):
            required[kind] += 1
            errors[kind] += error
        last = {"case": case, "gain": gain, "progress": progress, "error": error}

    def rate(kind):
        if not required.total():
            return None
        return errors[kind] / required[kind] if required[kind] else 0.0

    return {
        **last,
        "frontier": len(frontier()),
        "pending": len(pending()),
        "stale": stale_of(path),
        "stale_max": stale_max,
        "exploration_required": required["explore"],
        "exploration_errors": errors["explore"],
        "exploitation_required": required["exploit"],
        "exploitation_errors": errors["exploit"],
        "exploration_error_rate": rate("explore"),
        "exploitation_error_rate": rate("exploit"),
    }


def _ready(task, requires, achieved):
    sets = requires[task]
    return not sets or any(set(needed) <= achieved for needed in sets)


def _achieve(achieved, requires, located, here):
    """What is achieved by standing at ``here``, one task after the other."""
    while True:
        more = {
            task
            for task, place in located.items()
            if place == here and task not in achieved and _ready(task, requires, achieved)
        }
        if not more:
            return achieved
        achieved = achieved | more


def _distance(known, start, target):
    """Fewest moves over the known graph, either way along each exit."""
    reached, layer, moves = {start}, {start}, 0
    while layer:
        if target in layer:
            return moves
        layer = {
            there
            for place, one in known.items()
            for exit_ in one
            for here, there in ((place, exit_), (exit_, place))
            if here in layer
        } - reached
        reached |= layer
        moves += 1
    return float("inf")
